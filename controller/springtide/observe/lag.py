"""Distance of a consumer group from its topics' ends, as the brokers know it. Asking joins and commits nothing."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException, TopicPartition

from springtide.errors import SpringtideError, StoreError
from springtide.observe import kafka
from springtide.observe.aside import next_message
from springtide.observe.kafka_tables import Source

# A broker that is up answers within a second.
ANSWER_S = 5.0


class Ends:
    """Where the topics of `source` ended when the brokers first answered; `left` is how much the group lacks of that.

    What arrives later belongs to a later run: with that counted too, a run beside busy collectors would never end.
    """

    def __init__(self, source: Source) -> None:
        self._topics = [topic for topic in (source.topic, source.requests) if topic]
        self._source = source
        # Single messages are asked for.
        self._asker = kafka.consumer({**source.client, "queued.min.messages": 1})
        # The first message of each partition that has any, and the one behind the last.
        self._spans: dict[tuple[str, int], tuple[int, int]] | None = None
        # Where the group was in each of them at the last look.
        self._places: dict[tuple[str, int], int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._asker.close()

    def left(self) -> int | None:
        """Messages before the ends that the group has not committed; None while the brokers do not answer.

        Raises SpringtideError where a topic is missing.
        """
        try:
            if self._spans is None:
                self._spans = self._found()
            if not self._spans:
                return 0
            places = [TopicPartition(topic, number) for topic, number in self._spans]
            committed = self._asker.committed(places, timeout=ANSWER_S)
            return sum(self._lacking(place, self._spans) for place in committed)
        except (KafkaException, StoreError):
            return None

    def _lacking(self, place: TopicPartition, spans: dict[tuple[str, int], tuple[int, int]]) -> int:
        key = (place.topic, place.partition)
        low, high = spans[key]
        # A group that has committed nothing begins with the first message that is kept (a negative offset).
        place.offset = max(low, place.offset)
        stays, self._places[key] = self._places.get(key) == place.offset, place.offset
        # Offsets of control records, of aborted transactions and of what was compacted are of no message: a group that
        # stays before them has nothing left.
        if stays and place.offset < high and not self._comes(place, high):
            high = place.offset
            spans[key] = (low, high)
        return max(0, high - place.offset)

    def _comes(self, place: TopicPartition, high: int) -> bool:
        """Whether a consumer is given a message from there on."""
        message = next_message(self._asker, self._source, place)
        self._asker.unassign()
        return message is not None and message.offset < high

    def _found(self) -> dict[tuple[str, int], tuple[int, int]]:
        spans = {}
        for topic in self._topics:
            about = self._asker.list_topics(topic, timeout=ANSWER_S).topics[topic]
            if about.error is not None:
                raise SpringtideError(
                    f"topic {topic} cannot be read: {about.error.str()}; `springtide topics` makes it"
                )
            for number in about.partitions:
                low, high = self._asker.get_watermark_offsets(TopicPartition(topic, number), timeout=ANSWER_S)
                if low < high:
                    spans[topic, number] = (low, high)
        return spans
