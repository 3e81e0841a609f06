"""How far a consumer group is from its topics' ends, as the brokers know it. Asking joins and commits nothing."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException, TopicPartition

from springtide.errors import SpringtideError
from springtide.observe import kafka
from springtide.observe.kafka_tables import Source

# A broker that is up answers within a second.
ANSWER_S = 5.0


class Ends:
    """Where the topics of `source` ended when the brokers first answered; `left` is how much the group lacks of that.

    What arrives later belongs to a later run: with that counted too, a run beside busy collectors would never end.
    """

    def __init__(self, source: Source) -> None:
        self._topics = [topic for topic in (source.topic, source.requests) if topic]
        own = {"group.id": source.group, "enable.auto.commit": False}
        self._asker = kafka.consumer({"bootstrap.servers": source.brokers, **own})
        # Of each partition that has messages: the first, and the one behind the last.
        self._spans: dict[tuple[str, int], tuple[int, int]] | None = None

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
        except KafkaException:
            return None
        # A group that has committed nothing begins with the first message that is kept (a negative offset).
        return sum(
            max(0, high - max(low, place.offset))
            for place in committed
            for low, high in [self._spans[place.topic, place.partition]]
        )

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
