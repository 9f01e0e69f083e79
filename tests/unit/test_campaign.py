"""Rounds, late reports, minimum, save and resume, the paper's rule."""

import json
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import geoveil as gv
from geoveil.campaign import Crowd, simulate
from geoveil.campaign.one_map import NO_ROUNDS
from geoveil.campaign.rounds import NewestRounds, counted
from geoveil.campaign.rules import PromiseRule, PublishedRule
from geoveil.errors import InvalidFile, InvalidInput

GRID = gv.Grid(rows=6, columns=5, cell_km=0.5)
PEOPLE = np.random.default_rng(1).choice(
    GRID.size, size=3000, p=np.random.default_rng(2).dirichlet(np.full(GRID.size, 0.3))
)


def run_round(campaign, seed, people=PEOPLE):
    mechanism = campaign.mechanism
    campaign.receive(mechanism.tally(mechanism.sample(people, randomness=gv.seeded(1000 + seed))))
    return campaign.close_round()


def test_every_published_mechanism_keeps_the_promise():
    campaign = gv.Campaign(GRID, epsilon_per_km=2.0, camouflage=0.5)
    for seed in range(3):
        run_round(campaign, seed)
    mechanisms = [done.tally.channel for done in campaign.rounds] + [campaign.mechanism]
    assert len(mechanisms) == 4
    assert all(1.98 <= gv.certify(m).epsilon_per_km <= 2.0 for m in mechanisms)
    assert len({m.weights.tobytes() for m in mechanisms}) == 4  # each learnt from the last


def test_the_estimate_pools_all_rounds():
    campaign = gv.Campaign(GRID, epsilon_per_km=2.0)
    for seed in range(3):
        run_round(campaign, seed)
    pooled = gv.IterativeBayesianUpdate().fit([done.tally for done in campaign.rounds])
    np.testing.assert_array_equal(campaign.estimate.distribution, pooled.distribution)
    assert campaign.estimate.total == 9000


def test_what_is_asked_of_a_large_map_is_bounded(monkeypatch):
    campaign = gv.Campaign(GRID, epsilon_per_km=2.0, camouflage=0.5)
    for seed in range(3):
        run_round(campaign, seed)
    assert [done.number for done in campaign.closing.manipulation_gain()[1]] == [2, 3]
    monkeypatch.setattr("geoveil.campaign.rounds.MATRIX_LIMIT", GRID.size - 1)
    gain, attacked = campaign.closing.manipulation_gain()
    assert [done.number for done in attacked] == [3]
    assert gain.gain > 1

    asked = []

    class Asked:
        def __init__(self, *, replicates):
            self.replicates = replicates

        def check(self, tallies, estimate):
            asked.append((len(tallies), self.replicates))

    # the alarm looks at as many rounds, against as many honest campaigns, as can be afforded
    monkeypatch.setattr("geoveil.campaign.rounds.PoisoningAlarm", Asked)
    refit = GRID.size * (campaign.estimate.steps + 5)
    for refits, given in ((10, 3), (49, 3), (100, 3), (150, 3), (600, 3), (999, 6)):
        monkeypatch.setattr("geoveil.campaign.rounds._ALARM_EFFORT", refits * refit)
        NewestRounds().check((counted(campaign.rounds) * 2)[:given], campaign.estimate)
    assert asked == [(1, 49), (1, 49), (2, 50), (3, 50), (3, 199), (4, 199)]
    # and at every promise of them: whoever sends fakes chooses one
    asked.clear()
    for refits, given in ((10, 6), (160, 6), (600, 6), (2400, 18), (999, 1)):
        monkeypatch.setattr("geoveil.campaign.rounds._ALARM_EFFORT", refits * refit)
        NewestRounds(3).check((counted(campaign.rounds) * 6)[:given], campaign.estimate)
    assert asked == [(3, 49), (3, 53), (6, 100), (12, 199), (1, 199)]


def test_late_reports_count_under_their_own_mechanism():
    campaign = gv.Campaign(GRID, epsilon_per_km=2.0)
    first = campaign.mechanism
    run_round(campaign, 0)
    late = first.tally(np.array([4, 4, 4]))
    assert campaign.receive(late).number == 1
    assert campaign.rounds[0].tally.total == 3003
    assert campaign.current.tally.total == 0
    run_round(campaign, 1)
    assert campaign.estimate.total == 6003


@pytest.mark.parametrize("broken", ["design", "estimate"])
def test_a_close_that_fails_changes_nothing(monkeypatch, broken):
    failing, untouched = (
        gv.Campaign(GRID, epsilon_per_km=2.0, trusted_seed=True) for _ in range(2)
    )
    for seed in range(2):
        mechanism = failing.mechanism
        reports = mechanism.sample(PEOPLE, randomness=gv.seeded(seed))
        for campaign in (failing, untouched):
            campaign.receive(mechanism.tally(reports))
        before = failing.to_dict()
        with monkeypatch.context() as patched:
            patched.setattr(PromiseRule, broken, lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                failing.close_round()
        assert failing.to_dict() == before
        if seed:
            np.testing.assert_array_equal(failing.estimate.distribution, untouched.distribution)
        failing.close_round()
        untouched.close_round()
        assert failing.to_dict() == untouched.to_dict()


def test_unknown_mechanisms_are_refused():
    campaign = gv.Campaign(GRID, epsilon_per_km=2.0)
    stranger = gv.PlanarGeometric(GRID, epsilon_per_km=2.0)
    with pytest.raises(InvalidInput, match="published"):
        campaign.receive(stranger.tally([1, 2]))


def test_small_rounds_are_not_released():
    campaign = gv.Campaign(GRID, epsilon_per_km=2.0, minimum_reports=100)
    mechanism = campaign.mechanism
    assert run_round(campaign, 0, PEOPLE[:99]) is None
    assert campaign.rounds == []
    assert campaign.mechanism is mechanism
    with pytest.raises(InvalidInput, match="close a round"):
        _ = campaign.estimate
    closed = run_round(campaign, 1, PEOPLE[99:100])
    assert closed.tally.total == 100


def test_an_empty_round_does_not_close():
    assert gv.Campaign(GRID, epsilon_per_km=1.0).close_round() is None


@pytest.mark.parametrize(
    "make",
    [
        lambda: gv.Campaign(GRID, epsilon_per_km=2.0, camouflage=0.7, minimum_reports=5),
        lambda: gv.Campaign(GRID, epsilon_per_km=9.0, most_leverage=1.5, guarded=True),
        lambda: gv.Campaign.as_published(GRID, beta_per_km=1.0, design_steps=8, update_steps=10),
    ],
)
def test_resumed_collection_goes_on_exactly(tmp_path, make):
    campaign = make()
    for seed in range(2):
        run_round(campaign, seed)
    campaign.save(tmp_path / "campaign.json")
    resumed = gv.Campaign.load(tmp_path / "campaign.json")
    np.testing.assert_array_equal(resumed.estimate.distribution, campaign.estimate.distribution)
    assert resumed.mechanism == campaign.mechanism
    for seed in range(2, 4):
        run_round(campaign, seed)
        run_round(resumed, seed)
    np.testing.assert_array_equal(resumed.distribution, campaign.distribution)
    assert resumed.to_dict() == campaign.to_dict()


@pytest.mark.parametrize(
    "damage",
    [
        lambda values: values.pop("rule"),
        lambda values: values.update(geoveil_collection=99),
        lambda values: values["rule"].update(kind="hope"),
        lambda values: values["rounds"][0].update(counts=[1, 2]),
        lambda values: values["rounds"][0].update(mechanisms=[{}]),
    ],
)
def test_damaged_files_are_refused(tmp_path, damage):
    values = gv.Campaign(GRID, epsilon_per_km=2.0).to_dict()
    damage(values)
    path = tmp_path / "campaign.json"
    path.write_text(json.dumps(values))
    with pytest.raises(InvalidInput):
        gv.Campaign.load(path)


def boast(values, epsilon):
    (mechanism,) = values["rounds"][0]["mechanisms"]
    mechanism["guarantee"]["epsilon_per_km"] = epsilon
    mechanism["parameters"]["epsilon_per_km"] = epsilon


@pytest.mark.parametrize(
    ("made", "edit", "said"),
    [
        ({"epsilon_per_km": 2.0}, lambda values: boast(values, 0.1), "must not be smaller than"),
        ({"epsilon_per_km": 2.0}, lambda values: boast(values, 4.0), "must keep the promise"),
        (
            {"epsilon_per_km": 2.0},
            lambda values: values["rule"].update(epsilon_per_km=0.1),
            "must keep the promise",
        ),
        (
            {"rule": PublishedRule(1.0, 2, 2)},
            lambda values: values["rule"].update(beta_per_km=0.1),
            "must keep the promise",
        ),
    ],
)
def test_an_edited_promise_is_not_believed(made, edit, said):
    values = gv.Campaign(GRID, **made).to_dict()
    assert gv.Campaign.from_dict(values).to_dict() == values
    edit(values)
    with pytest.raises(InvalidFile, match=said):
        gv.Campaign.from_dict(values)


@pytest.mark.parametrize("entry", ["epsilon_per_km", "rounds", "counts", "guarantee"])
def test_an_entry_that_is_named_twice_is_refused(tmp_path, entry):
    path = tmp_path / "campaign.json"
    gv.Campaign(GRID, epsilon_per_km=2.0).save(path)
    text = path.read_text()
    path.write_text(text.replace(f'"{entry}":', f'"{entry}":0.1,"{entry}":', 1))
    with pytest.raises(InvalidFile, match="names no entry twice"):
        gv.Campaign.load(path)


def test_junk_is_refused(tmp_path):
    path = tmp_path / "campaign.json"
    path.write_bytes(b"\xff\x00 not json")
    with pytest.raises(InvalidFile, match="saved campaign"):
        gv.Campaign.load(path)


def test_a_guarded_collection_leaves_out_what_the_alarm_finds():
    plain, guarded = (
        gv.Campaign(GRID, epsilon_per_km=4.0, guarded=guarded) for guarded in (False, True)
    )
    for campaign in (plain, guarded):
        run_round(campaign, 10)
    np.testing.assert_array_equal(guarded.distribution, plain.distribution)
    quiet = int(plain.distribution.argmin())
    plain, guarded = (
        gv.Campaign(GRID, epsilon_per_km=4.0, guarded=guarded) for guarded in (False, True)
    )
    for campaign in (plain, guarded):
        campaign.receive(campaign.mechanism.tally(np.full(300, quiet)))
        run_round(campaign, 11)
    truth = np.bincount(PEOPLE, minlength=GRID.size) / PEOPLE.size
    moved = [(each.distribution - truth)[quiet] for each in (plain, guarded)]
    assert moved[0] > 0.04
    assert (
        abs(moved[1]) < 0.5 * moved[0]
    )  # what may be fakes is taken out only where that is sure at 99 %
    fewest, most = guarded.closing.inspected.fake_range
    assert 150 < fewest <= 300 <= most


def test_a_bounded_collection_bounds_every_round():
    campaign = gv.Campaign(GRID, epsilon_per_km=4.0, most_leverage=2.8)
    for seed in range(2):
        run_round(campaign, seed)
    mechanisms = [done.tally.channel for done in campaign.rounds] + [campaign.mechanism]
    assert all(mechanism.leverage <= 2.8 for mechanism in mechanisms)
    assert gv.Campaign(GRID, epsilon_per_km=4.0).rule.to_dict().keys() == {
        "kind", "epsilon_per_km", "camouflage"
    }  # fmt: skip


def test_published_rule_is_the_papers_algorithm():
    """Alg. 1 with dense matrices: N_BA − 1 updates of c, EM from the last estimate on the last round."""
    campaign = gv.Campaign.as_published(GRID, beta_per_km=1.0, design_steps=8, update_steps=10)
    kernel = np.exp(-GRID.distances_km())
    theta = np.full(GRID.size, 1 / GRID.size)
    for seed in range(3):
        c = np.full(GRID.size, 1 / GRID.size)
        for _ in range(7):
            channel = c * kernel
            channel /= channel.sum(axis=1, keepdims=True)
            c = theta @ channel
        channel = c * kernel
        channel /= channel.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(campaign.mechanism.matrix(), channel, rtol=1e-7)
        run_round(campaign, seed)
        q = campaign.rounds[-1].tally.counts / PEOPLE.size
        for _ in range(10):
            theta = theta * (channel @ (q / (theta @ channel)))
        np.testing.assert_allclose(campaign.distribution, theta, rtol=1e-7, atol=1e-12)


def test_simulation_tells_people_once_from_people_each_round():
    pytest.importorskip("ot")
    once, every = (
        simulate(gv.Campaign(GRID, epsilon_per_km=2.0), crowd, rounds=3, seed=1, **given)
        for crowd, given in ((Crowd(PEOPLE), {"hindsight": True, "ends": True}),
                             (Crowd(PEOPLE, "each round"), {}))
    )  # fmt: skip
    assert once.campaign.current.closed  # with its last round: no mechanism follows
    assert not every.campaign.current.closed
    assert [r.reports for r in once.rounds] == [1000, 2000, 3000]
    assert [r.reports for r in every.rounds] == [3000, 6000, 9000]
    assert once.rounds[-1].floor_km == pytest.approx(0, abs=1e-12)
    assert once.rounds[0].floor_km > 0
    assert all(r.error_km < once.start_km for r in once.rounds)
    assert all(r.hindsight_km <= r.error_km * 1.2 for r in once.rounds)


def test_churn_and_fakes_change_what_arrives():
    pytest.importorskip("ot")
    crowd = Crowd(PEOPLE, churn=0.5, fake_share=0.2, fake_report=7)
    result = simulate(gv.Campaign(GRID, epsilon_per_km=2.0), crowd, rounds=1, seed=4)
    tally = result.campaign.rounds[0].tally
    honest = tally.total * 0.8
    assert abs(honest - 1500) < 150
    assert tally.counts[7] >= tally.total * 0.2
    assert result.rounds[0].distribution[7] > result.truth[7] + 0.05


@pytest.mark.parametrize(
    "wrong", [{"everybody": "sometimes"}, {"churn": 1.0}, {"fake_share": -0.1}]
)
def test_impossible_crowds_are_refused(wrong):
    with pytest.raises(InvalidInput):
        Crowd(PEOPLE, **wrong)


def test_rules_check_their_numbers():
    with pytest.raises(InvalidInput):
        PublishedRule(beta_per_km=-1.0, design_steps=8, update_steps=10)
    with pytest.raises(InvalidInput):
        gv.Campaign(GRID, epsilon_per_km=2.0, camouflage=3.0)
    with pytest.raises(InvalidInput):
        gv.Campaign(GRID)


# -- what cannot be saved, mixed or taken out ----------------------------------------------------


def test_late_reports_do_not_change_an_estimate_made_before_them(tmp_path):
    campaign = gv.Campaign(GRID, epsilon_per_km=2.0)
    first = campaign.mechanism
    run_round(campaign, 1)
    campaign.receive(first.tally(np.full(50, 3)))
    campaign.save(tmp_path / "campaign.json")
    resumed = gv.Campaign.load(tmp_path / "campaign.json")
    assert resumed.estimate.total == campaign.estimate.total
    np.testing.assert_array_equal(resumed.estimate.distribution, resumed.distribution)
    run_round(campaign, 2)
    run_round(resumed, 2)
    np.testing.assert_array_equal(resumed.distribution, campaign.distribution)


def test_a_file_saved_before_late_reports_were_told_apart_is_read():
    campaign = gv.Campaign(GRID, epsilon_per_km=2.0)
    run_round(campaign, 1)
    saved = campaign.to_dict()
    del saved["estimated_from"]
    resumed = gv.Campaign.from_dict(saved)
    np.testing.assert_array_equal(resumed.estimate.distribution, campaign.distribution)


def test_a_resumed_mechanism_says_what_a_designed_one_does(tmp_path):
    campaign = gv.Campaign(GRID, epsilon_per_km=2.0)
    run_round(campaign, 1)
    campaign.save(tmp_path / "campaign.json")
    resumed = gv.Campaign.load(tmp_path / "campaign.json").mechanism
    assert resumed.leverage == pytest.approx(campaign.mechanism.leverage)
    assert resumed.warning is None


@pytest.mark.parametrize(
    "own", [{"stop": gv.Steps(3)}, {"start": np.full(GRID.size, 1 / GRID.size)}]
)
def test_an_estimator_of_ones_own_cannot_be_saved(own):
    own = gv.IterativeBayesianUpdate(**own)
    with pytest.raises(InvalidInput, match="estimator of its own"):
        gv.Campaign(GRID, rule=PromiseRule(2.0, estimator=own)).to_dict()


@pytest.mark.parametrize(
    "change",
    [
        {"rounds": []},
        {"prior": [0.5, 0.5]},
        {"minimum_reports": -1},
        {"estimated_from": [[1, 2, 3]]},
        {"estimated_from": [[]]},
        {"fakes": [[1, 2, 3, 1e400]]},
        {"standing": {**vars(NO_ROUNDS), "looks": 1e400}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_saved_collection_that_cannot_be_is_refused(change):
    saved = gv.Campaign(GRID, epsilon_per_km=2.0).to_dict()
    part = saved if change.keys() <= saved.keys() else saved["rounds"][0]
    part.update(change)
    with pytest.raises(InvalidFile):
        gv.Campaign.from_dict(saved)


@pytest.mark.parametrize("option", [{"guarded": True}, {"camouflage": 0.9}, {"most_leverage": 3.0}])
def test_a_rule_has_its_own_settings(option):
    with pytest.raises(InvalidInput, match="rule="):
        gv.Campaign(GRID, rule=PromiseRule(2.0), **option)


@pytest.mark.parametrize(
    ("promises", "fakes", "cell", "rounds"),
    [([4.0], 40, 14, 2), ([4.0], 500, 4, 2), ([2.0, 4.0, 6.0], 500, 4, 1)],
)
def test_a_guarded_round_of_nothing_but_fakes_closes(promises, fakes, cell, rounds):
    campaign = gv.Campaign(GRID, promises_per_km=promises, guarded=True, minimum_reports=20)
    for _ in range(rounds):
        for mechanism in campaign.mechanisms.values():
            campaign.receive(mechanism.tally(np.full(fakes, cell)))
        assert campaign.close_round() is not None
    assert campaign.estimate.total >= 20


def test_hindsight_is_for_the_plain_update_only():
    crowd = Crowd(PEOPLE)
    guarded = gv.Campaign(GRID, epsilon_per_km=2.0, guarded=True)
    published = gv.Campaign.as_published(GRID, beta_per_km=1.0, design_steps=3, update_steps=3)
    for campaign in (guarded, published):
        (only,) = simulate(campaign, crowd, rounds=1, seed=1, hindsight=True).rounds
        assert only.hindsight_km is None


def test_the_published_rule_survives_an_estimate_that_came_to_nothing():
    rule = PublishedRule(2.0, 3, 5)
    tally = gv.Exponential(GRID, epsilon_per_km=2.0).tally(np.zeros(10, dtype=np.int64))
    believed = np.zeros(GRID.size)
    believed[0] = 1.0
    assert rule.estimate([tally], believed).distribution[0] > 0.9


def test_a_crowd_reports_from_its_positions() -> None:
    space = gv.Grid.from_box(south=48.85, west=2.30, north=48.862, east=2.326, cell_km=0.5)
    generator = np.random.default_rng(8)
    cells = generator.integers(space.size, size=300)
    places = space.centres[cells] + generator.uniform(-0.25, 0.25, (300, 2))
    campaign = gv.Campaign(space, epsilon_per_km=2.0)
    mechanism = campaign.mechanism
    assert isinstance(mechanism, gv.PositionalElastic)
    result = simulate(campaign, Crowd(cells, positions_km=places), rounds=1, seed=4)
    order = np.random.default_rng(4).permutation(300)
    drawn = mechanism.sample_at_km(places[order], randomness=gv.seeded(4 * 1_000_003))
    assert np.array_equal(campaign.rounds[0].tally.counts, mechanism.tally(drawn).counts)
    assert result.rounds[0].reports == 300
    with pytest.raises(InvalidInput, match="a row for each of 300 people"):
        Crowd(cells, positions_km=places[:-1])


def test_what_is_no_tally_no_list_of_promises_and_no_mechanism_is_named() -> None:
    line = gv.Line(3)
    with pytest.raises(InvalidInput, match=r"tally \(list\) must be a tally"):
        gv.Campaign(line, epsilon_per_km=1.0).receive([1, 2, 3])  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r"promises_per_km \(1.0\) must be a list"):
        gv.Campaign(line, promises_per_km=1.0)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="mechanisms must not be empty"):
        gv.manipulation_gain([], [1.0])


def test_tallies_from_threads_all_count() -> None:
    class Slow(gv.Tally):
        @property
        def counts(self):
            time.sleep(0.02)
            return super().counts

    campaign = gv.Campaign(GRID, epsilon_per_km=2.0)
    one = Slow(campaign.mechanism, np.ones(campaign.mechanism.report_count, dtype=int))
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: campaign.receive(one), range(4)))
    assert campaign.current.total == 4 * campaign.mechanism.report_count
