"""Requests to Airflow's API."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from pipeline import api


def test_what_may_be_asked_twice_is_asked_again_after_an_error_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    asked: list[str] = []

    class Server(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(f"{self.command} {self.path}")
            code = 404 if "missing" in self.path else 500 if len(asked) < 3 or "broken" in self.path else 200
            self.send_response(code)
            self.end_headers()
            self.wfile.write(b"[7]")

        do_POST = do_PATCH = do_GET

    with HTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            client = api.Api(f"http://127.0.0.1:{server.server_port}")
            assert client.get("dags") == [7]
            assert asked == ["GET /api/v2/dags"] * 3
            for method, path, times in (
                ("POST", "/broken", 1),
                ("PATCH", "/missing", 1),
                ("GET", "/broken", api.TRIES),
            ):
                asked.clear()
                with pytest.raises(OSError, match=f"{method} {path}: HTTP Error"):
                    client.call(method, path)
                assert len(asked) == times
        finally:
            server.shutdown()
