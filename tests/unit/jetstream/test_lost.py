"""What stream info says of messages that damage took."""

import pytest

from config.limits import MAX_LOST_SHOWN
from server.jetstream.api.answers import add_lost
from storage._seqset import SequenceSet
from storage.ports import LostData, StreamState


def shown(last: int) -> dict[str, object]:
    answer: dict[str, object] = {}
    lost = LostData(SequenceSet([(1, last)])) if last else None
    add_lost(answer, StreamState(5, 5, 1, 1, 9, 9, 1, 0, lost=lost))
    return answer


@pytest.mark.feature("2.065")
def test_lost_messages_are_listed_one_by_one_up_to_a_bound() -> None:
    assert shown(0) == {}
    assert shown(3) == {"lost": {"msgs": [1, 2, 3], "bytes": 0}}
    most = shown(MAX_LOST_SHOWN + 5)["lost"]
    assert most == {
        "msgs": list(range(1, MAX_LOST_SHOWN + 1)),
        "bytes": 0,
        "count": MAX_LOST_SHOWN + 5,
    }
