"""Bundles that bring edges back.

An edge refuses bundles older than its own: old values get a newer creation time.
"""

from __future__ import annotations

from springtide import instants
from springtide.bundles.model import Bundle, Document, fields_of, seal
from springtide.laws.entry import Part

# Fields of the bundle that it undoes: whose it is, and after what it comes.
OF_THE_NEW = ("edge", "pop", "round", "created_at")


def going_back(before: Bundle | None, new: Bundle) -> Document:
    """The bundle that undoes `new` on its edge: what was current before it, until its own expiry, or nothing.

    It is one second younger than `new`, because an edge refuses bundles older than its own. Tenants that `new` leaves
    alone stay so: it is they who opted out, and no value that was decided.
    """
    created = instants.parse(new.created_at) + 1
    alone = new.enforce.opted_out
    # By routes nobody can be left alone.
    can = before is not None and (before.by, before.enforce.otherwise) == ("bpf", "default")
    # A later bundle is of a clock that was ahead: edges refuse it, and would refuse its values again.
    known = before is not None and instants.parse(before.created_at) <= created + instants.EDGE_TOLERANCE_S
    if known and before is not None and instants.parse(before.expires_at) > created and (can or not alone):
        fields = fields_of(before)
        if alone:
            fields["enforce"] = before.enforce.but(opted_out=alone)
    else:
        # By routes of which there are none: the program goes, and open connections are treated as `new` says.
        fields = {
            **fields_of(new),
            "enforce": Part(by="routes", otherwise="default", live=new.enforce.live),
            "entries": [],
        }
    fields |= {name: getattr(new, name) for name in OF_THE_NEW} | {"created_at": instants.show(created)}
    return seal(fields)


def renewed(old: Bundle, over: Bundle | None, now_unix_s: int) -> Document:
    """Old values as a bundle that edges take after `over`: the later round of both, created now."""
    # One of a clock that was ahead is nothing to come after: edges refuse it as long as it is.
    latest = now_unix_s + instants.EDGE_TOLERANCE_S
    held = old if over is None or instants.parse(over.created_at) > latest else over
    moment = max(instants.parse(old.round), instants.parse(held.round))
    # `over` may have been taken back, by a bundle one second younger than itself.
    created = max(now_unix_s, instants.parse(held.created_at) + 2)
    return seal({**fields_of(old), "round": instants.show(moment), "created_at": instants.show(created)})
