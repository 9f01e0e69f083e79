"""What every store does, written once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from geoveil.errors import InvalidInput
from geoveil.store import (
    ClosingRecord,
    EstimateRecord,
    PreparationRecord,
    RoundTimes,
    Store,
    StoreFailed,
    TokenRecord,
    Upload,
)
from geoveil.store.records import TABLES
from store.devices import a_campaign, a_round, counts, device_id, kept_ids, plain, start, totals

MISSING = "no-such-campaign"
CLOSED = ClosingRecord("paris", 1, 500)


def estimate_of(campaign: str, number: int) -> EstimateRecord:
    return EstimateRecord(campaign, number, 1_000, 7, b'{"distribution":[1]}')


def counts_at(store: Store, number: int) -> dict[int, list[int]]:
    """The counts when a round of Paris closed."""
    return {n: plain(c) for n, c in store.closing_counts("paris", number).items()}


class StoreContract:
    """A subclass supplies the fixture ``store``: an empty one, closed at the end."""

    def test_an_empty_store_knows_nothing(self, store: Store) -> None:
        assert store.campaigns() == []
        assert store.campaign(MISSING) is None
        assert store.rounds(MISSING) == []
        assert store.round_of(64 * "0") is None
        assert store.counts(MISSING) == {}
        assert store.closings() == []
        assert store.estimate(MISSING) is None
        assert store.forget_ids(now_s=10**12) == 0
        assert not store.has_tokens()
        store.check()
        assert store.engine

    def test_a_campaign_is_kept_with_its_first_round(self, store: Store) -> None:
        assert store.create_campaign(a_campaign("rome"), a_round("rome"))
        assert store.create_campaign(a_campaign("oslo"), a_round("oslo"))
        assert store.campaigns() == [a_campaign("rome"), a_campaign("oslo")]
        assert store.campaign("oslo") == a_campaign("oslo")
        assert store.rounds("rome") == [a_round("rome")]
        assert store.round_of(a_round("oslo").mechanism) == a_round("oslo")

    def test_an_existing_campaign_is_not_replaced(self, store: Store) -> None:
        start(store)
        other = replace(a_campaign(), name="Other")
        assert not store.create_campaign(other, replace(a_round(), mechanism=64 * "1"))
        assert store.campaigns() == [a_campaign()]
        assert store.rounds("paris") == [a_round()]

    def test_a_mechanism_is_published_once(self, store: Store) -> None:
        start(store)
        stolen = replace(a_round("rome"), mechanism=a_round().mechanism)
        with pytest.raises(InvalidInput, match="published twice"):
            store.create_campaign(a_campaign("rome"), stolen)
        assert store.campaign("rome") is None

    @pytest.mark.parametrize("first", [a_round("rome"), a_round(number=2)])
    def test_a_campaign_starts_with_round_1_of_its_own(self, store: Store, first) -> None:
        with pytest.raises(InvalidInput, match="round 1"):
            store.create_campaign(a_campaign(), first)

    # -- preparations ----------------------------------------------------------------------------

    def test_a_campaign_without_a_round_waits_for_the_first(self, store: Store) -> None:
        first = PreparationRecord("paris", 1)
        assert store.create_campaign(a_campaign(), None)
        assert not store.create_campaign(a_campaign(), None)
        assert store.preparation("paris") == first
        assert store.preparations() == [first]
        assert store.rounds("paris") == []
        assert store.last_round("paris") is None
        assert not store.close_round("paris", 1, minimum=0, at_s=1)
        assert not store.replace_document(a_round(number=2), after=1, at_s=1)
        assert store.finish_preparation(first, a_round(), at_s=100)
        assert not store.finish_preparation(first, a_round(), at_s=100)
        assert store.rounds("paris") == [a_round()]
        assert store.preparation("paris") is None
        assert store.preparations() == []

    def test_what_is_drawn_later_takes_the_place_of_what_was_wanted(self, store: Store) -> None:
        store.create_campaign(a_campaign(), None)
        box, city = PreparationRecord("paris", 1), PreparationRecord("paris", 1, b"{}")
        assert store.claim(box, until_s=70)
        assert store.prepare(city)
        assert not store.claim(box, until_s=80, held_until_s=70)
        assert store.claim(city, until_s=80), "whoever had the box has not the city"
        assert not store.finish_preparation(box, a_round(), at_s=100)
        assert not store.refuse_preparation(box, "it cannot be")
        assert store.failed(box) == 0
        assert store.finish_preparation(city, a_round(), at_s=100)

    def test_a_prepared_round_follows_the_open_one(self, store: Store) -> None:
        start(store)
        assert not store.prepare(PreparationRecord("paris", 1))
        wanted = PreparationRecord("paris", 2, b"{}")
        assert store.prepare(wanted)
        with pytest.raises(InvalidInput, match="prepared"):
            store.finish_preparation(wanted, a_round(number=3), at_s=150)
        assert store.finish_preparation(wanted, a_round(number=2), at_s=150)
        one, two = store.rounds("paris")
        assert (one.closed_at_s, two.closed_at_s) == (150, None)
        assert store.closings() == [], "nobody had reported under it"

    @pytest.mark.parametrize("prepared", [2, 3])
    def test_no_round_opens_behind_one_that_opened_meanwhile(
        self, store: Store, prepared: int
    ) -> None:
        start(store)
        wanted = PreparationRecord("paris", prepared)
        assert store.prepare(wanted)
        for number in (1, 2):  # an operator closes by hand
            store.add([Upload("paris", number, device_id(number), 0)])
            assert store.close_round("paris", number, minimum=1, at_s=100 + number)
            assert store.publish(estimate_of("paris", number), a_round(number=number + 1))
        late = a_round(number=prepared, until_s=10_000)
        assert not store.finish_preparation(wanted, late, at_s=150)
        assert [one.number for one in store.rounds("paris")] == [1, 2, 3]
        assert store.preparation("paris") is None

    def test_a_preparation_is_one_process_at_a_time(self, store: Store) -> None:
        store.create_campaign(a_campaign(), None)
        wanted = PreparationRecord("paris", 1)
        assert store.claim(wanted, until_s=160)
        assert not store.claim(wanted, until_s=190)
        assert store.claim(wanted, until_s=190, held_until_s=160)
        assert not store.claim(wanted, until_s=249, held_until_s=160)
        assert [each.claimed_until_s for each in store.preparations()] == [190]
        assert store.claim(wanted, until_s=250, held_until_s=190)
        store.release(wanted, held_until_s=250)
        assert store.claim(wanted, until_s=251)
        assert [store.failed(wanted) for _ in range(2)] == [1, 2]
        assert store.preparations() == [replace(wanted, failures=2)]

    def test_what_cannot_be_prepared_ends_its_campaign_and_says_why(self, store: Store) -> None:
        store.create_campaign(a_campaign(), None)
        wanted = PreparationRecord("paris", 1)
        with pytest.raises(InvalidInput, match="sentence"):
            store.refuse_preparation(wanted, "")
        assert store.refuse_preparation(wanted, "it cannot be")
        assert store.preparation("paris") == replace(wanted, problem="it cannot be")
        assert store.preparations() == []
        kept = store.campaign("paris")
        assert kept is not None
        assert kept.state == "ended"
        assert not store.claim(wanted, until_s=61)
        assert not store.finish_preparation(wanted, a_round(), at_s=1)
        assert not store.prepare(wanted)
        assert store.delete_campaign("paris")
        assert store.preparation("paris") is None

    def test_nothing_is_prepared_for_a_campaign_that_has_ended(self, store: Store) -> None:
        store.create_campaign(a_campaign(), None)
        store.change_campaign("paris", state="ended", at_s=800)
        wanted = PreparationRecord("paris", 1)
        assert store.preparations() == []
        assert store.preparation("paris") == wanted
        assert not store.claim(wanted, until_s=61)
        assert not store.finish_preparation(wanted, a_round(), at_s=1)
        assert store.rounds("paris") == []

    # -- reports ---------------------------------------------------------------------------------

    def test_no_reports(self, store: Store) -> None:
        assert store.add([]) == []

    def test_reports_are_counted_by_round_and_cell(self, store: Store) -> None:
        start(store, cells=3)
        start(store, "rome", cells=2)
        uploads = [
            Upload("paris", 1, device_id(0), 2),
            Upload("rome", 1, device_id(1), 0),
            Upload("paris", 1, device_id(2), 2),
            Upload("paris", 1, device_id(3), 0),
        ]
        assert store.add(uploads) == [True] * 4
        assert counts(store) == {1: [1, 0, 2]}
        assert counts(store, "rome") == {1: [1, 0]}
        assert totals(store) == [3]
        found = store.round_of(a_round().mechanism)
        assert found is not None
        assert found.total == 3

    def test_an_id_counts_once_in_a_campaign_whatever_it_carries(self, store: Store) -> None:
        start(store, cells=3)
        start(store, "rome", cells=3)
        first = Upload("paris", 1, device_id(0), 1)
        assert store.add([first]) == [True]
        assert store.add([first, first._replace(cell=2)]) == [False, False]
        assert store.add([first._replace(campaign="rome")]) == [True]
        assert counts(store) == counts(store, "rome") == {1: [0, 1, 0]}

    def test_of_the_same_id_twice_in_one_call_the_first_counts(self, store: Store) -> None:
        start(store, cells=3)
        first = Upload("paris", 1, device_id(0), 1)
        assert store.add([first, first._replace(cell=2), first]) == [True, False, False]
        assert counts(store) == {1: [0, 1, 0]}

    @pytest.mark.parametrize(
        "wrong",
        [
            Upload(MISSING, 1, device_id(1), 0),
            Upload("paris", 0, device_id(1), 0),
            Upload("paris", 2, device_id(1), 0),
            Upload("paris", 1, device_id(1), 3),
            Upload("paris", 1, device_id(1), -1),
            Upload("paris", 1, device_id(1)[:15], 0),
        ],
    )
    def test_one_wrong_report_keeps_nothing_of_its_call(self, store: Store, wrong: Upload) -> None:
        start(store, cells=3)
        with pytest.raises(InvalidInput):
            store.add([Upload("paris", 1, device_id(0), 0), wrong])
        assert counts(store) == {1: [0, 0, 0]}
        assert kept_ids(store) == set()

    def test_thousands_of_reports_in_one_call(self, store: Store) -> None:
        start(store, cells=64)
        uploads = [Upload("paris", 1, device_id(n), n % 64) for n in range(5_000)]
        assert store.add(uploads[:3_000]) == [True] * 3_000
        assert store.add(uploads) == [False] * 3_000 + [True] * 2_000
        assert totals(store) == [5_000]
        assert counts(store)[1] == [sum(n % 64 == c for n in range(5_000)) for c in range(64)]

    def test_one_id_from_fifty_threads_counts_once(self, store: Store) -> None:
        start(store, cells=3)
        together = threading.Barrier(50)
        new: list[bool] = []

        def send() -> None:
            together.wait()
            new.extend(store.add([Upload("paris", 1, device_id(0), 1)]))

        threads = [threading.Thread(target=send) for _ in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(new) == [False] * 49 + [True]
        assert counts(store) == {1: [0, 1, 0]}

    # -- closing ---------------------------------------------------------------------------------

    def test_a_round_closes_once_with_enough_reports(self, store: Store) -> None:
        start(store, cells=2)
        assert not store.close_round("paris", 1, minimum=0, at_s=500)
        store.add([Upload("paris", 1, device_id(n), 1) for n in range(3)])
        assert not store.close_round("paris", 1, minimum=4, at_s=500)
        assert not store.close_round("paris", 2, minimum=1, at_s=500)
        assert not store.close_round(MISSING, 1, minimum=1, at_s=500)
        assert store.close_round("paris", 1, minimum=3, at_s=500)
        assert not store.close_round("paris", 1, minimum=3, at_s=600)
        assert store.rounds("paris") == [replace(a_round(cells=2), closed_at_s=500, total=3)]

    def test_a_closing_keeps_the_counts_of_its_moment(self, store: Store) -> None:
        start(store, cells=2)
        store.add([Upload("paris", 1, device_id(0), 1)])
        store.close_round("paris", 1, minimum=1, at_s=500)
        store.add([Upload("paris", 1, device_id(1), 0)])
        (closing,) = store.closings()
        assert closing == ClosingRecord("paris", 1, 500)
        assert counts_at(store, 1) == {1: [0, 1]}
        assert counts(store) == {1: [1, 1]}

    def test_the_next_closing_keeps_late_reports_of_earlier_rounds(self, store: Store) -> None:
        start(store, cells=2)
        store.add([Upload("paris", 1, device_id(0), 1)])
        store.close_round("paris", 1, minimum=1, at_s=500)
        store.publish(estimate_of("paris", 1), a_round(number=2, cells=2))
        late, current = Upload("paris", 1, device_id(1), 0), Upload("paris", 2, device_id(2), 0)
        store.add([late, current])
        assert store.close_round("paris", 2, minimum=1, at_s=600)
        assert counts_at(store, 2) == {1: [1, 1], 2: [1, 0]}
        assert counts_at(store, 1) == {1: [0, 1]}  # every closing can be estimated again
        store.add([Upload("paris", 1, device_id(3), 0)])
        assert counts(store) == {1: [2, 1], 2: [1, 0]}
        assert counts_at(store, 2) == {1: [1, 1], 2: [1, 0]}

    def test_a_closing_is_read_by_the_rounds_that_are_needed(self, store: Store) -> None:
        start(store, cells=2)
        for number, reported in ((1, 1), (2, None), (3, 3), (4, 1)):
            if number > 1:
                assert store.replace_document(
                    a_round(number=number, cells=2), after=number - 1, at_s=500
                )
            if reported is not None:
                store.add([Upload("paris", reported, device_id(number), 1)])
        assert store.close_round("paris", 4, minimum=0, at_s=600) is False  # nobody reported in it
        store.add([Upload("paris", 4, device_id(5), 0)])
        assert store.close_round("paris", 4, minimum=1, at_s=600)
        assert store.publish(estimate_of("paris", 4), a_round(number=5, cells=2))
        store.add([Upload("paris", number, device_id(10 + number), 0) for number in (2, 5)])
        assert store.close_round("paris", 5, minimum=1, at_s=700)
        assert store.reported_rounds("paris", 4) == [1, 3, 4]
        assert store.reported_rounds("paris", 5) == [1, 2, 3, 4, 5]
        assert store.reported_rounds(MISSING, 4) == []
        some = store.closing_counts("paris", 4, {5, 3, 2, 77})
        assert {number: plain(by_cell) for number, by_cell in some.items()} == {
            2: [0, 0],
            3: [0, 1],
        }
        pairs = store.closing_pairs("paris", 5, [5, 2])
        assert {number: rows.tolist() for number, rows in pairs.items()} == {
            2: [[0, 1]],
            5: [[0, 1]],
        }
        assert [one.number for one in store.rounds("paris", [4, 2, 9])] == [2, 4]

    def test_closings_wait_oldest_first(self, store: Store) -> None:
        for name, at_s in (("rome", 900), ("oslo", 700), ("bonn", 900)):
            start(store, name)
            store.add([Upload(name, 1, device_id(0), 0)])
            assert store.close_round(name, 1, minimum=1, at_s=at_s)
        assert [closing.campaign for closing in store.closings()] == ["oslo", "rome", "bonn"]

    def test_a_closing_is_claimed_by_one_until_another_names_the_claim(self, store: Store) -> None:
        start(store)
        assert not store.claim(CLOSED, until_s=1_060)
        store.add([Upload("paris", 1, device_id(0), 0)])
        store.close_round("paris", 1, minimum=1, at_s=500)
        assert [each.claimed_until_s for each in store.closings()] == [0]
        assert store.claim(CLOSED, until_s=300_000_060)  # of a clock that was wrong
        assert [each.claimed_until_s for each in store.closings()] == [300_000_060]
        assert not store.claim(CLOSED, until_s=1_060)
        assert store.claim(CLOSED, until_s=1_060, held_until_s=300_000_060)
        assert not store.claim(CLOSED, until_s=9_060)  # whatever the clock says
        store.release(CLOSED, held_until_s=300_000_060)  # it is another's by now
        assert not store.claim(CLOSED, until_s=1_121)
        store.release(CLOSED, held_until_s=1_060)
        assert store.claim(CLOSED, until_s=1_121)
        store.publish(estimate_of("paris", 1), a_round(number=2))
        assert not store.claim(CLOSED, until_s=9_060, held_until_s=1_121)

    def test_the_last_round_and_how_many_were_concluded(self, store: Store) -> None:
        assert store.last_round(MISSING) is None
        assert store.rounds_concluded(MISSING) == 0
        start(store)
        store.replace_document(a_round(number=2), after=1, at_s=300)
        assert store.last_round("paris") == a_round(number=2)
        assert store.rounds_concluded("paris") == 0
        store.add([Upload("paris", 2, device_id(0), 0), Upload("paris", 1, device_id(1), 0)])
        store.close_round("paris", 2, minimum=1, at_s=500)
        assert store.rounds_concluded("paris") == store.rounds_concluded("paris", before=3) == 1
        assert store.rounds_concluded("paris", before=2) == 0

    def test_how_far_a_campaign_has_come(self, store: Store) -> None:
        assert store.progress(MISSING) == (None, 0, 0)
        start(store)
        assert store.progress("paris") == (a_round(), 0, 0)
        store.replace_document(a_round(number=2), after=1, at_s=300)
        store.add([Upload("paris", 2, device_id(0), 0), Upload("paris", 1, device_id(1), 0)])
        assert store.progress("paris") == (replace(a_round(number=2), total=1), 2, 1)

    def test_the_newest_rounds_of_all_that_are_running(self, store: Store) -> None:
        assert store.last_rounds() == []
        for name in ("rome", "oslo", "paris"):
            start(store, name)
        store.create_campaign(a_campaign("bern"), None)
        store.replace_document(a_round("rome", number=2), after=1, at_s=300)
        store.add([Upload("rome", 2, device_id(0), 0), Upload("paris", 1, device_id(0), 0)])
        store.close_round("paris", 1, minimum=1, at_s=400)
        store.change_campaign("oslo", state="paused", at_s=800)
        two, one = a_round("rome", number=2), a_round("paris")
        assert store.last_rounds() == [
            RoundTimes("rome", 2, two.mechanism, two.opened_at_s, two.expires_at_s, None, 1),
            RoundTimes("paris", 1, one.mechanism, one.opened_at_s, one.expires_at_s, 400, 1),
        ]

    def test_whoever_has_a_closing_may_have_it_longer(self, store: Store) -> None:
        start(store)
        store.add([Upload("paris", 1, device_id(0), 0)])
        store.close_round("paris", 1, minimum=1, at_s=500)
        assert store.claim(CLOSED, until_s=1_060)
        for now_s in range(1_020, 1_600, 20):
            assert store.claim(CLOSED, until_s=now_s + 60, held_until_s=now_s + 40)
            assert not store.claim(CLOSED, until_s=now_s + 79)
            assert not store.claim(CLOSED, until_s=now_s + 79, held_until_s=now_s + 40)
        # nobody said anything for a minute
        assert store.claim(CLOSED, until_s=1_700, held_until_s=1_640)
        assert not store.claim(CLOSED, until_s=1_701, held_until_s=1_640)
        store.publish(estimate_of("paris", 1), a_round(number=2))
        assert not store.claim(CLOSED, until_s=1_710, held_until_s=1_700)

    def test_a_claim_is_none_on_a_campaign_made_anew(self, store: Store) -> None:
        for _ in range(2):
            start(store)
            store.add([Upload("paris", 1, device_id(0), 0)])
            store.close_round("paris", 1, minimum=1, at_s=500)
            assert not store.claim(CLOSED, until_s=1_080, held_until_s=1_060)
            assert store.claim(CLOSED, until_s=1_060)
            store.delete_campaign("paris")

    def test_the_last_estimate_opens_no_round(self, store: Store) -> None:
        start(store)
        store.add([Upload("paris", 1, device_id(1), 0)])
        assert store.close_round("paris", 1, minimum=1, at_s=500)
        assert store.publish(estimate_of("paris", 1), None)
        assert not store.publish(estimate_of("paris", 1), None)
        assert [kept.number for kept in store.rounds("paris")] == [1]
        assert store.closings() == []
        assert store.estimate("paris") == estimate_of("paris", 1)
        assert not store.publish(estimate_of(MISSING, 1), None)
        assert not store.close_round("paris", 1, minimum=1, at_s=600)
        assert store.add([Upload("paris", 1, device_id(2), 0)]) == [True]

    def test_an_estimate_is_published_once_with_the_next_round(self, store: Store) -> None:
        start(store)
        with pytest.raises(InvalidInput, match="must be closed"):
            store.publish(estimate_of("paris", 1), a_round(number=2))
        store.add([Upload("paris", 1, device_id(0), 0)])
        store.close_round("paris", 1, minimum=1, at_s=500)
        with pytest.raises(InvalidInput, match="round after"):
            store.publish(estimate_of("paris", 1), a_round(number=3))
        assert store.publish(estimate_of("paris", 1), a_round(number=2))
        assert not store.publish(
            replace(estimate_of("paris", 1), reports=8),
            replace(a_round(number=2), mechanism=64 * "2"),
        )
        assert store.closings() == []
        assert store.estimate("paris") == store.estimate("paris", 1) == estimate_of("paris", 1)
        assert store.estimate("paris", 2) is None
        assert [one.number for one in store.rounds("paris")] == [1, 2]

    def test_a_failed_publication_keeps_nothing(self, store: Store) -> None:
        start(store)
        store.add([Upload("paris", 1, device_id(0), 0)])
        store.close_round("paris", 1, minimum=1, at_s=500)
        reused = replace(a_round(number=2), mechanism=a_round().mechanism)
        with pytest.raises(InvalidInput, match="published twice"):
            store.publish(estimate_of("paris", 1), reused)
        assert store.estimate("paris") is None
        assert len(store.closings()) == len(store.rounds("paris")) == 1

    def test_maps_of_slots_are_kept_beside_the_estimate(self, store: Store) -> None:
        start(store)
        store.add([Upload("paris", 1, device_id(1), 0)])
        store.close_round("paris", 1, minimum=1, at_s=5)
        estimate = estimate_of("paris", 1)
        store.publish(replace(estimate, slots=b'{"maps":[]}'), a_round(number=2))
        assert store.slot_maps("paris", 1) == b'{"maps":[]}'
        assert store.estimate("paris") == estimate  # which is short
        assert (store.slot_maps("paris", 2), store.slot_maps(MISSING, 1)) == (b"", b"")

    def test_the_last_estimate_is_that_of_the_last_round_with_one(self, store: Store) -> None:
        start(store)
        for number in (1, 2):
            store.add([Upload("paris", number, device_id(number), 0)])
            store.close_round("paris", number, minimum=1, at_s=500)
            store.publish(estimate_of("paris", number), a_round(number=number + 1))
        assert store.estimate("paris") == estimate_of("paris", 2)
        assert store.estimate("paris", 1) == estimate_of("paris", 1)

    def test_an_expired_document_is_replaced_without_an_estimate(self, store: Store) -> None:
        start(store)
        assert store.replace_document(a_round(number=2), after=1, at_s=800)
        assert not store.replace_document(
            replace(a_round(number=2), mechanism=64 * "3"), after=1, at_s=900
        )
        assert not store.replace_document(a_round(MISSING, 2), after=1, at_s=900)
        assert [one.closed_at_s for one in store.rounds("paris")] == [800, None]
        assert store.closings() == []
        assert not store.close_round("paris", 1, minimum=0, at_s=900)

    def test_a_round_opens_while_the_one_before_waits_for_its_estimate(self, store: Store) -> None:
        start(store)
        store.add([Upload("paris", 1, device_id(0), 0)])
        store.close_round("paris", 1, minimum=1, at_s=500)
        assert store.replace_document(a_round(number=40), after=1, at_s=900)
        assert not store.replace_document(a_round(number=41), after=1, at_s=900)
        with pytest.raises(InvalidInput, match="after"):
            store.replace_document(a_round(number=40), after=40, at_s=900)
        assert [(one.number, one.closed_at_s) for one in store.rounds("paris")] == [
            (1, 500),
            (40, None),
        ]
        assert store.publish(estimate_of("paris", 1), a_round(number=2))
        assert [one.number for one in store.rounds("paris")] == [1, 40]

    def test_an_estimate_that_fails_is_given_up_and_the_next_round_opens(
        self, store: Store
    ) -> None:
        start(store, cells=2)
        store.add([Upload("paris", 1, device_id(0), 1)])
        assert store.failed(CLOSED) == 0
        store.close_round("paris", 1, minimum=1, at_s=500)
        assert [store.failed(CLOSED) for _ in range(3)] == [1, 2, 3]
        assert store.closings() == [ClosingRecord("paris", 1, 500, failures=3)]
        assert store.give_up(1, a_round(number=2, cells=2))
        assert not store.give_up(1, a_round(number=3, cells=2))
        assert (store.rounds_concluded("paris"), store.given_up("paris")) == (0, {1: 3})
        assert store.closings() == []
        assert not store.claim(CLOSED, until_s=760)
        store.add([Upload("paris", 2, device_id(1), 0)])
        store.close_round("paris", 2, minimum=1, at_s=800)
        assert counts_at(store, 2) == {1: [0, 1], 2: [1, 0]}
        assert store.rounds_concluded("paris") == 1

    @pytest.mark.parametrize("clock_s", [-300, 0, 1, 900])
    def test_a_round_given_up_beside_the_next_stays_concluded(
        self, store: Store, clock_s: int
    ) -> None:
        start(store)
        for number in (1, 2):
            store.add([Upload("paris", number, device_id(number), 0)])
            store.close_round("paris", number, minimum=1, at_s=500)
            if number == 1:
                store.replace_document(a_round(number=2), after=1, at_s=600)
        late = replace(a_round(number=3), opened_at_s=a_round(number=2).opened_at_s + clock_s)
        assert store.give_up(1, late)
        assert (store.rounds_concluded("paris"), store.given_up("paris")) == (2, {1: 0})
        assert store.given_up("paris", after=1) == {}
        assert [one.number for one in store.rounds("paris")] == [1, 2]
        assert store.give_up(2, late)  # which opens another in its place
        assert store.rounds_concluded("paris") == 1
        assert store.given_up("paris", after=1) == {2: 0}
        assert [one.number for one in store.rounds("paris")] == [1, 2, 3]

    # -- campaigns that change ---------------------------------------------------------------------

    def test_a_map_is_published_since_when_it_was_and_taken_back(self, store: Store) -> None:
        start(store)
        assert store.change_campaign("paris", published=True, at_s=7)
        assert store.change_campaign("paris", published=True, at_s=9)
        assert store.campaign("paris") == replace(a_campaign(), published_at_s=7)
        assert store.change_campaign("paris", published=False, at_s=9)
        assert store.campaign("paris") == a_campaign()
        assert not store.change_campaign(MISSING, published=True, at_s=7)

    def test_a_backdrop_is_kept_and_forgotten(self, store: Store) -> None:
        start(store)
        assert store.backdrop("paris") is None
        assert store.keep_backdrop("paris", b"{}")
        assert store.backdrop("paris") == b"{}"
        assert store.campaign("paris") == a_campaign()
        assert store.keep_backdrop("paris", None)
        assert store.backdrop("paris") is None
        assert not store.keep_backdrop(MISSING, b"{}")
        assert store.backdrop(MISSING) is None

    def test_a_campaign_is_renamed_paused_and_ended(self, store: Store) -> None:
        start(store)
        assert store.change_campaign("paris", name="Île-de-France", at_s=800)
        assert store.change_campaign("paris", state="paused", at_s=800)
        assert store.campaign("paris") == replace(
            a_campaign(), name="Île-de-France", state="paused"
        )
        assert not store.change_campaign(MISSING, state="ended", at_s=800)
        assert store.change_campaign("paris", state="ended", at_s=800)
        assert not store.replace_document(a_round(number=2), after=1, at_s=800)
        assert not store.change_campaign("paris", name="Paris", state="running", at_s=800)
        assert store.campaign("paris") == replace(a_campaign(), name="Île-de-France", state="ended")
        assert store.change_campaign("paris", name="Paris", at_s=800)

    def test_the_end_of_a_campaign_closes_its_round_where_it_has_enough(self, store: Store) -> None:
        for name, reports in (("paris", 3), ("rome", 2)):
            start(store, name)
            store.add([Upload(name, 1, device_id(number), 0) for number in range(reports)])
        for _ in range(2):  # the second time nothing is left to do
            for name in ("paris", "rome"):
                assert store.change_campaign(name, state="ended", minimum=3, at_s=500)
            assert store.closings() == [ClosingRecord("paris", 1, 500)]
        assert {each.state for each in store.campaigns()} == {"ended"}
        assert counts_at(store, 1)[1][0] == 3
        assert not store.change_campaign(MISSING, state="ended", minimum=0, at_s=500)

    def test_no_round_is_opened_after_one_that_was_closed_meanwhile(self, store: Store) -> None:
        start(store)
        assert store.replace_document(a_round(number=2), after=1, at_s=400, still_open=True)
        store.add([Upload("paris", 2, device_id(0), 0)])
        store.close_round("paris", 2, minimum=1, at_s=500)
        assert not store.replace_document(a_round(number=3), after=2, at_s=900, still_open=True)
        third = a_round(number=3)
        assert not store.change_campaign(
            "paris", name="Other", published=True, at_s=900, following=third, still_open=True
        )
        assert store.campaign("paris") == a_campaign()
        assert [one.closed_at_s for one in store.rounds("paris")] == [400, 500]
        assert store.replace_document(a_round(number=3), after=2, at_s=900)

    def test_an_ended_campaign_keeps_its_last_estimate_and_opens_nothing(
        self, store: Store
    ) -> None:
        start(store)
        store.add([Upload("paris", 1, device_id(0), 0)])
        store.close_round("paris", 1, minimum=1, at_s=500)
        store.change_campaign("paris", state="ended", at_s=800)
        assert store.publish(estimate_of("paris", 1), a_round(number=2))
        assert [one.number for one in store.rounds("paris")] == [1]

    def test_a_deleted_campaign_leaves_nothing(self, store: Store, monkeypatch) -> None:
        monkeypatch.setattr("geoveil.store.contract._AT_A_TIME", 7)
        monkeypatch.setattr("geoveil.store.contract._ROUNDS_AT_A_TIME", 1)
        start(store, "rome")
        start(store)
        store.add(
            [Upload(name, 1, device_id(n), 0) for n in range(20) for name in ("paris", "rome")]
        )
        store.close_round("paris", 1, minimum=1, at_s=500)
        store.publish(estimate_of("paris", 1), a_round(number=2))
        store.add([Upload("paris", number, device_id(30 + number), 0) for number in (1, 2)])
        store.close_round("paris", 2, minimum=1, at_s=600)  # with a late report of round 1
        assert store.delete_campaign("paris")
        assert not store.delete_campaign("paris")
        with store.snapshot() as snapshot:
            rows = {table: len(list(snapshot(table))) for table in TABLES}
        expected = {"campaign": 1, "round": 1, "report": 20, "tally": 1, "round_total": 1}
        assert rows == {table: expected.get(table, 0) for table in TABLES}
        for number in (1, 2):
            with pytest.raises(InvalidInput):
                store.add([Upload("paris", number, device_id(40), 0)])
        start(store)
        assert store.add([Upload("paris", 1, device_id(0), 0)]) == [True]
        (anew,) = store.rounds("paris")
        with pytest.raises(InvalidInput):  # under a mechanism of the one before
            store.add([Upload("paris", 1, device_id(1), 0, "f" * 64)])
        assert store.add([Upload("paris", 1, device_id(1), 0, anew.mechanism)]) == [True]

    # -- time --------------------------------------------------------------------------------------

    def test_the_time_is_kept_and_a_copy_is_marked(self, store: Store) -> None:
        assert (store.time_kept(), store.copied_at_s()) == (None, None)
        store.keep_time(5_000)
        store.keep_time(4_000)
        assert (store.time_kept(), store.copied_at_s()) == (4_000, None)
        store.mark_copy(4_500)
        assert (store.time_kept(), store.copied_at_s()) == (4_000, 4_500)
        store.mark_copy(None)
        assert (store.time_kept(), store.copied_at_s()) == (4_000, None)

    # -- forgetting ------------------------------------------------------------------------------

    def test_ids_are_forgotten_when_their_round_is_over_and_counts_stay(self, store: Store) -> None:
        store.create_campaign(a_campaign(), a_round(until_s=1_000))
        store.replace_document(a_round(number=2, until_s=5_000), after=1, at_s=900)
        store.add([Upload("paris", 1 + n % 2, device_id(n), 0) for n in range(10)])
        assert store.forget_ids(now_s=1_000) == 0
        assert store.forget_ids(now_s=1_001) == 5
        assert store.forget_ids(now_s=1_001) == 0
        assert kept_ids(store) == {device_id(n) for n in range(10) if n % 2}
        assert totals(store) == [5, 5]

    def test_a_round_without_its_ids_takes_no_reports(self, store: Store) -> None:
        store.create_campaign(a_campaign(), a_round(until_s=1_000))
        store.replace_document(a_round(number=2), after=1, at_s=900)
        store.add([Upload("paris", 1, device_id(0), 0)])
        store.forget_ids(now_s=2_000)
        for again in (device_id(0), device_id(1)):
            with pytest.raises(InvalidInput, match="came to an end"):
                store.add([Upload("paris", 2, device_id(2), 0), Upload("paris", 1, again, 0)])
        assert totals(store) == [1, 0]

    def test_many_ids_are_forgotten_in_parts(self, store: Store, monkeypatch) -> None:
        monkeypatch.setattr("geoveil.store.contract._AT_A_TIME", 7)
        store.create_campaign(a_campaign(), a_round(until_s=1_000))
        store.replace_document(a_round(number=2), after=1, at_s=900)
        store.add([Upload("paris", 1 + n % 2, device_id(n), 0) for n in range(100)])
        assert store.forget_ids(now_s=2_000) == 50
        assert kept_ids(store) == {device_id(n) for n in range(1, 100, 2)}

    # -- operators and the store itself ----------------------------------------------------------

    def test_ids_are_kept_until_the_end_where_they_are_those_of_tickets(self, store: Store) -> None:
        store.create_campaign(a_campaign(), a_round(), bytes(256))
        store.add([Upload("paris", 1, device_id(1), 0)])
        assert store.forget_ids(now_s=10**12) == 0
        assert store.add([Upload("paris", 1, device_id(1), 1)]) == [False]
        store.change_campaign("paris", state="ended", minimum=1, at_s=900)
        assert store.forget_ids(now_s=10**12) == 1

    def test_a_campaign_has_one_key_for_its_tickets(self, store: Store) -> None:
        assert store.create_campaign(a_campaign(), a_round(), 256 * b"a")
        assert not store.create_campaign(a_campaign(), a_round(), 256 * b"b")
        assert store.ticket_key("paris") == 256 * b"a"
        start(store, "rome")
        assert store.ticket_key("rome") is None is store.ticket_key(MISSING)

    def test_an_invitation_is_good_for_one_request(self, store: Store) -> None:
        start(store)
        codes = [bytes([i]) * 32 for i in range(3)]
        assert store.invite("paris", codes)
        assert not store.invite(MISSING, codes)
        assert store.invitations("paris") == (3, 0)
        assert store.invitations(MISSING) == (0, 0)
        assert store.use_invitation("paris", codes[0], 32 * b"x") is True
        assert store.use_invitation("paris", codes[0], 32 * b"y") is False
        assert store.use_invitation("paris", codes[0], 32 * b"x") is True
        assert store.use_invitation("paris", 32 * b"?", 32 * b"x") is None
        assert store.use_invitation(MISSING, codes[0], 32 * b"x") is None
        store.invite("paris", codes)  # known ones stay as they are
        assert store.invitations("paris") == (3, 1)
        store.change_campaign("paris", state="ended", at_s=800)
        assert not store.invite("paris", [32 * b"?"])
        assert store.invitations("paris") == (3, 1)
        store.delete_campaign("paris")
        assert store.invitations("paris") == (0, 0)
        assert store.ticket_key("paris") is None

    def test_of_fifty_requests_for_an_invitation_one_is_signed(self, store: Store) -> None:
        start(store)
        store.invite("paris", [bytes(32)])
        requests = [bytes([i]) * 32 for i in range(50)]
        with ThreadPoolExecutor(10) as threads:
            used = list(
                threads.map(lambda r: store.use_invitation("paris", bytes(32), r), requests)
            )
        assert sorted(used, key=str) == [False] * 49 + [True]

    def test_tokens(self, store: Store) -> None:
        store.add_token(bytes(32), label="laptop", at_s=1)
        store.add_token(bytes(32), label="again", at_s=2)
        assert store.has_tokens()
        assert store.token_known(bytes(32))
        assert not store.token_known(bytes(31) + b"1")

    def test_a_token_is_taken_back_and_the_others_stay(self, store: Store) -> None:
        for number, label in ((3, "late"), (1, "laptop"), (2, "phone")):
            store.add_token(bytes([number]) * 32, label=label, at_s=number)
        assert store.tokens()[0] == TokenRecord(bytes([1]) * 32, "laptop", 1)
        assert [each.label for each in store.tokens()] == ["laptop", "phone", "late"]
        assert store.take_back_token(bytes([2]) * 32)
        assert not store.take_back_token(bytes([2]) * 32)
        assert not store.token_known(bytes([2]) * 32)
        assert [each.label for each in store.tokens()] == ["laptop", "late"]
        for each in store.tokens():
            assert store.take_back_token(each.digest)
        assert not store.has_tokens()

    def test_a_closed_store_is_not_ready(self, store: Store) -> None:
        store.close()
        with pytest.raises(StoreFailed):
            store.check()

    def test_reads_see_what_other_threads_were_told_is_kept(self, store: Store) -> None:
        start(store)
        for number in range(20):
            thread = threading.Thread(
                target=store.add, args=([Upload("paris", 1, device_id(number), 0)],)
            )
            thread.start()
            thread.join()
            assert totals(store) == [number + 1]
