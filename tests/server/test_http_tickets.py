"""Promise 23: one ticket, one report, and nobody can tell whose."""

from __future__ import annotations

import json
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from databases import cluster
from geoveil.client import Device, Refused, Unacknowledged
from geoveil.document.ticket import (
    SigningKey,
    TicketKey,
    TicketRequest,
    as_text,
    challenge,
    from_text,
)
from geoveil.errors import InvalidInput
from server.conftest import InProcess
from server.live import Live, new_id
from server.uploads import stored
from store.memory import MemoryStore

REPORTS, TICKETS, INVITATIONS = (
    f"/api/campaigns/lyon/{kind}" for kind in ("reports", "tickets", "invitations")
)
HERE = {"lat": 45.75, "lng": 4.84}


def invited(service: InProcess, count: int = 1) -> list[str]:
    answer = service.post(INVITATIONS, json={"count": count}, operator=True)
    assert answer.status_code == 201, answer.text
    return list(answer.json()["invitations"])


def key_of(service: InProcess) -> TicketKey:
    return TicketKey.from_bytes(from_text(service.get("/api/campaigns/lyon").json()["ticket_key"]))


def wish(code: str, request: TicketRequest) -> dict[str, str]:
    return {"invitation": code, "blinded": as_text(request.blinded)}


def ticket(service: InProcess, code: str, seed: bytes = bytes(32)) -> str:
    request = TicketRequest(seed, key_of(service), "lyon")
    answer = service.post(TICKETS, json=wish(code, request))
    assert answer.status_code == 200, answer.text
    return as_text(request.finish(from_text(answer.json()["signature"])))


def report(service: InProcess, **changes: Any) -> dict[str, Any]:
    return {"mechanism": service.mechanism()["id"], "id": new_id(), "cell": 1, **changes}


def with_ticket(text: str) -> dict[str, str]:
    return {"authorization": f'PrivateToken token="{text}"'}


def counted(service: InProcess) -> int:
    return int(sum(counts.sum() for counts in service.store.counts("lyon").values()))


def problem(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["type"].rsplit("/", 1)[-1]


PRIMES = (10519, 10421, 9661, 8401, 8329, 5209, 5111, 3727, 3031, 2197, 2087, 1937, 1697, 1037)
"""So far above 3·2¹⁰²²: two for a key, that of a higher number smaller."""


def a_key(number: int) -> SigningKey:
    p, q = ((3 << 1022) + above for above in PRIMES[2 * number - 2 : 2 * number])
    return SigningKey((p, q))


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Campaigns in this process have keys that are known, one after another: to make one takes a second."""
    numbers = count(1)
    monkeypatch.setattr(SigningKey, "new", lambda *_: a_key(next(numbers)))


@pytest.fixture
def service(inside: Callable[..., InProcess]) -> InProcess:
    made = inside(requests_per_minute=0, reports_per_minute=0)
    made.campaign(tickets=True)
    return made


def test_a_report_with_a_ticket_counts_once_however_it_is_sent(service: InProcess) -> None:
    spent = with_ticket(ticket(service, invited(service)[0]))
    first = report(service)
    for sent in (first, first, report(service), report(service, cell=7)):
        answer = service.post(REPORTS, json=sent, headers=spent)
        assert answer.json() == {"id": sent["id"], "status": "counted"}
        assert counted(service) == 1


def test_as_many_reports_count_as_there_are_invitations(service: InProcess) -> None:
    codes = invited(service, 3)
    for number, code in enumerate(codes):
        spent = with_ticket(ticket(service, code, bytes([number]) * 32))
        for _ in range(3):
            assert service.post(REPORTS, json=report(service), headers=spent).status_code == 200
    assert counted(service) == 3
    told = service.get(INVITATIONS, operator=True).json()
    assert told == {"made": 3, "used": 3}


@pytest.mark.parametrize("deleted", [False, True])
def test_no_code_is_told_that_nobody_kept(service: InProcess, deleted: bool) -> None:
    """Another process ends or deletes the campaign a moment before, which this one does not know yet."""
    invited(service)
    if deleted:
        service.store.delete_campaign("lyon")
    else:
        service.store.change_campaign("lyon", state="ended", at_s=1)
    answer = service.post(INVITATIONS, json={"count": 2}, operator=True)
    assert problem(answer) == (410, "campaign-ended")


def test_no_report_counts_without_a_ticket(service: InProcess) -> None:
    good = ticket(service, invited(service)[0])
    other = a_key(7)
    request = TicketRequest(bytes(32), other.public, "lyon")
    forged = as_text(request.finish(other.sign(request.blinded)))
    headers: list[Any] = [
        {},
        {"authorization": "Bearer " + good},
        {"authorization": "PrivateToken"},
        {"authorization": f'PrivateToken token="{good}", token="{good}"'},
        with_ticket(forged),
        with_ticket(good[:-4]),
        with_ticket(good[:-4] + "AAAA"),
        with_ticket(good[:-1]),
        with_ticket("A" * 472),
        with_ticket("é"),
        [("authorization", f"PrivateToken token={good}")] * 2,
    ]
    for sent in headers:
        given = sent if isinstance(sent, list) else {k: v.encode() for k, v in sent.items()}
        answer = service.run(service.client.post(REPORTS, json=report(service), headers=given))
        assert problem(answer) == (401, "ticket-needed"), sent
        asked, key = map(urlsafe_b64encode, (challenge("lyon"), key_of(service).spki))
        wanted = f'PrivateToken challenge="{asked.decode()}", token-key="{key.decode()}"'
        assert answer.headers["www-authenticate"] == wanted
    several = service.post(REPORTS, json={"reports": [report(service)]}, headers=with_ticket(good))
    assert problem(several) == (401, "ticket-needed")
    assert counted(service) == 0
    plain = {"authorization": f"privatetoken  token={good}"}
    assert service.post(REPORTS, json=report(service), headers=plain).status_code == 200


def test_a_ticket_of_another_campaign_is_none(service: InProcess) -> None:
    service.campaign(id="nice", name="Nice", tickets=True)
    good = ticket(service, invited(service)[0])
    mechanism = service.mechanism("nice")["id"]
    sent = {"mechanism": mechanism, "id": new_id(), "cell": 1}
    answer = service.post("/api/campaigns/nice/reports", json=sent, headers=with_ticket(good))
    assert problem(answer) == (401, "ticket-needed")


def test_an_invitation_is_good_for_one_ticket(service: InProcess) -> None:
    (code,) = invited(service)
    first, second = (TicketRequest(seed * 32, key_of(service), "lyon") for seed in (b"1", b"2"))
    signed = service.post(TICKETS, json=wish(code, first)).json()
    again = service.post(TICKETS, json=wish(code.upper().replace("-", " "), first)).json()
    assert signed == again
    assert problem(service.post(TICKETS, json=wish(code, second))) == (409, "invitation-used")
    unknown = service.post(TICKETS, json=wish("k7qf3-aaaaa-aaaaa-aaaaa", second))
    assert problem(unknown) == (404, "unknown-invitation")


@pytest.mark.parametrize("blinded", ["", "A" * 341, "A" * 342, "_" * 342, "é" * 342, "A" * 343, 7])
def test_nothing_is_used_up_by_what_cannot_be_signed(service: InProcess, blinded: Any) -> None:
    (code,) = invited(service)
    answer = service.post(TICKETS, json={"invitation": code, "blinded": blinded})
    assert problem(answer) == (400, "malformed-body")
    assert service.get(INVITATIONS, operator=True).json()["used"] == 0


def test_only_operators_invite(service: InProcess) -> None:
    for answer in (service.post(INVITATIONS, json={"count": 1}), service.get(INVITATIONS)):
        assert problem(answer) == (401, "unauthorised")
    for wrong in (0, -1, 10_001, 1.5, "1"):
        answer = service.post(INVITATIONS, json={"count": wrong}, operator=True)
        assert problem(answer) == (400, "malformed-body")


def test_codes_are_long_different_and_not_kept(service: InProcess) -> None:
    codes = invited(service, 500)
    assert len(set(codes)) == 500
    assert all(len(code.replace("-", "")) == 20 for code in codes)
    kept = repr(service.store.__dict__)
    assert not any(code in kept or code.replace("-", "") in kept for code in codes)


def test_a_campaign_without_tickets_knows_none(inside: Callable[..., InProcess]) -> None:
    service = inside()
    service.campaign()
    assert service.get("/api/campaigns/lyon").json()["ticket_key"] is None
    assert problem(service.post(INVITATIONS, json={"count": 1}, operator=True))[1] == "not-offered"
    answer = service.post(TICKETS, json={"invitation": "x", "blinded": "A" * 342})
    assert problem(answer)[1] == "not-offered"
    assert service.post(REPORTS, json=report(service)).status_code == 200


def test_a_pause_uses_up_nothing(service: InProcess) -> None:
    (code,) = invited(service)
    request = TicketRequest(bytes(32), key_of(service), "lyon")
    service.request("PATCH", "/api/campaigns/lyon", json={"state": "paused"}, operator=True)
    described = service.get("/openapi.json").json()["paths"]
    for path, sent in ((TICKETS, wish(code, request)), (INVITATIONS, {"count": 1})):
        answer = service.post(path, json=sent, operator=True)
        assert problem(answer) == (409, "campaign-paused")
        operation = described[path.replace("lyon", "{campaign}")]["post"]
        assert "campaign-paused" in operation["responses"]["409"]["description"]
    service.request("PATCH", "/api/campaigns/lyon", json={"state": "running"}, operator=True)
    assert service.store.invitations("lyon") == (1, 0)
    assert service.post(TICKETS, json=wish(code, request)).status_code == 200


def test_nothing_is_signed_once_the_campaign_has_ended(service: InProcess) -> None:
    (code,) = invited(service)
    request = TicketRequest(bytes(32), key_of(service), "lyon")
    service.request("PATCH", "/api/campaigns/lyon", json={"state": "ended"}, operator=True)
    answer = service.post(TICKETS, json=wish(code, request))
    assert problem(answer) == (410, "campaign-ended")
    assert service.store.invitations("lyon") == (1, 0)


def test_a_campaign_made_anew_has_another_key(service: InProcess) -> None:
    old, spent = key_of(service), with_ticket(ticket(service, invited(service)[0]))
    assert service.request("DELETE", "/api/campaigns/lyon", operator=True).status_code == 204
    service.campaign(tickets=True)
    assert key_of(service) != old
    answer = service.post(REPORTS, json=report(service), headers=spent)
    assert problem(answer) == (401, "ticket-needed")


def test_all_services_of_a_store_have_one_key(inside: Callable[..., InProcess]) -> None:
    store = MemoryStore()
    one, other = inside(store), inside(store)
    one.campaign(tickets=True)
    assert key_of(one) == key_of(other)
    spent = with_ticket(ticket(one, invited(one)[0]))
    for service in (other, one, other):
        assert service.post(REPORTS, json=report(service), headers=spent).status_code == 200
    assert counted(one) == 1


def test_a_campaign_is_there_with_its_key_or_not_yet(
    service: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    def new() -> SigningKey:
        assert service.store.campaign("rome") is None  # else each who asks would make one more
        return a_key(6)

    monkeypatch.setattr(SigningKey, "new", new)
    service.campaign(tickets=True, id="rome")
    assert service.store.ticket_key("rome") == a_key(6).to_bytes()


def test_another_process_knows_at_once_that_a_campaign_made_anew_needs_tickets(
    inside: Callable[..., InProcess],
) -> None:
    store = MemoryStore()
    one, other = inside(store), inside(store)
    one.campaign()
    assert other.get("/api/campaigns/lyon").json()["ticket_key"] is None
    assert one.request("DELETE", "/api/campaigns/lyon", operator=True).status_code == 204
    one.campaign(tickets=True)
    answer = other.post(REPORTS, json=report(one))
    assert problem(answer) == (401, "ticket-needed")
    assert counted(one) == 0


# --- A real service: nothing is spent twice, whoever tries


def spend(server: Live, tickets: list[str], times: int) -> None:
    """Send every ticket so many times, from eight threads, each time as another report."""
    mechanism = server.mechanism("lyon")["id"]
    with server.client() as client:

        def send(text: str) -> int:
            sent = {"mechanism": mechanism, "id": new_id(), "cell": 1}
            return client.post(REPORTS, json=sent, headers=with_ticket(text)).status_code

        with ThreadPoolExecutor(8) as threads:
            assert set(threads.map(send, tickets * times)) == {200}


@pytest.mark.parametrize(
    ("kind", "people"),
    [
        ("sqlite", 5),
        pytest.param("sqlite", 200, marks=pytest.mark.slow),
        pytest.param("postgres", 200, marks=pytest.mark.slow),
    ],
)
def test_nothing_is_spent_twice_over_restarts_and_rounds(
    tmp_path: Path, kind: str, people: int
) -> None:
    database = str(cluster().database()) if kind == "postgres" else None
    with Live(tmp_path, database, tick_s=0.05) as server:
        server.campaign(tickets=True, minimum_reports=5)
        tickets = []
        with server.operator() as operator, server.client() as client:
            codes = operator.post(INVITATIONS, json={"count": people + 1}).json()["invitations"]
            state = client.get("/api/campaigns/lyon").json()
            key = TicketKey.from_bytes(from_text(state["ticket_key"]))
            for number, code in enumerate(codes[:people]):
                request = TicketRequest(bytes([number]) * 32, key, "lyon")
                signed = client.post(TICKETS, json=wish(code, request)).json()["signature"]
                tickets.append(as_text(request.finish(from_text(signed))))
        spend(server, tickets, 20)
        server.kill()
        server.start()
        spend(server, tickets, 4)
        with server.operator() as operator:
            operator.post("/api/campaigns/lyon/rounds", json={})
            while server.mechanism("lyon")["round"] == 1:
                time.sleep(0.05)
            spend(server, tickets, 4)  # under another mechanism
            receipt = a_device(
                f"{server.url}/c/lyon#invitation={codes[-1]}", tmp_path / "ledger.db"
            ).report(**HERE)
            assert receipt.acknowledged
        server.stop()
        assert stored(server.database, "lyon").total() == people + 1
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.name != "ledger.db")
    for secret in (*codes, *(code.replace("-", "") for code in codes), *tickets):
        assert secret.encode() not in kept
    for ticket in map(from_text, tickets):  # neither its nonce nor its signature
        assert ticket[2:34] not in kept
        assert ticket[98:] not in kept


# --- Devices


def a_device(link: str, ledger: Path, **options: Any) -> Device:
    return Device(link, max_epsilon_per_km=1.0, budget_per_km=10.0, ledger=ledger, **options)


class Through:
    """A device's requests to an application in this process."""

    def __init__(self, service: InProcess) -> None:
        self.service = service
        self.sent: list[tuple[str, str]] = []
        self.lose = 0

    def get(self, path: str, *, tag: str | None, limit: int) -> Any:
        return self._answer(self.service.get(path))

    def post(self, path: str, body: bytes, *, limit: int, ticket: str = "") -> Any:
        from geoveil.client.network import Unreachable

        self.sent.append((path.rsplit("/", 1)[-1], ticket))
        headers = with_ticket(ticket) if ticket else {}
        answer = self._answer(self.service.post(path, json=json.loads(body), headers=headers))
        if self.lose:
            self.lose -= 1
            raise Unreachable("lost")
        return answer

    @staticmethod
    def _answer(answer: httpx.Response) -> Any:
        from geoveil.client.network import Answer

        media = answer.headers.get("content-type", "").partition(";")[0]
        return Answer(answer.status_code, media, 0.0, answer.content)


def patient() -> Any:
    from geoveil.client.collector import Patience

    return Patience(attempts=1, sleep=lambda _: None)


@pytest.fixture
def through(service: InProcess) -> Through:
    return Through(service)


def of(through: Through, code: str, ledger: Path, **options: Any) -> Device:
    link = f"https://collector.example/c/lyon#invitation={code}"
    return a_device(link, ledger, transport=through, patience=patient(), **options)


def test_a_device_reports_with_an_invitation(through: Through, tmp_path: Path) -> None:
    (code,) = invited(through.service)
    device = of(through, code, tmp_path / "ledger.db")
    receipt = device.report(**HERE)
    assert receipt.acknowledged
    assert [kind for kind, _ in through.sent] == ["tickets", "reports"]
    assert device.ledger.ticket(device.address.name) is None  # it is spent
    assert device.report(**HERE) == receipt
    assert counted(through.service) == 1
    assert code not in (tmp_path / "ledger.db").read_bytes().decode("latin-1")


def test_the_ticket_is_fetched_before_and_no_location_read_without(
    through: Through, tmp_path: Path
) -> None:
    read: list[int] = []

    def locate() -> tuple[float, float]:
        read.append(1)
        return HERE["lat"], HERE["lng"]

    (used,) = invited(through.service)
    of(through, used, tmp_path / "another.db").accept()
    wrong = {"unknown-invitation": "k7qf3-aaaaa-aaaaa-aaaaa", "invitation-used": used}
    for why, code in wrong.items():
        with pytest.raises(Refused) as refused:
            of(through, code, tmp_path / f"{why}.db").report(locate=locate)
        assert (refused.value.reason, refused.value.detail) == ("invitation", why)
    assert read == []
    assert of(through, "", tmp_path / "spent.db").history() == []


def test_a_lost_answer_is_asked_for_again_with_the_same_request(
    through: Through, tmp_path: Path
) -> None:
    (code,) = invited(through.service)
    device = of(through, code, tmp_path / "ledger.db")
    through.lose = 1
    with pytest.raises(Refused, match="did not answer"):
        device.report(**HERE)
    again = of(through, code, tmp_path / "ledger.db")
    through.lose = 0
    assert again.report(**HERE).acknowledged
    assert through.service.store.invitations("lyon") == (1, 1)


def test_a_report_whose_answer_was_lost_keeps_its_ticket(through: Through, tmp_path: Path) -> None:
    (code,) = invited(through.service)
    device = of(through, code, tmp_path / "ledger.db")
    device.accept()
    through.lose = 1
    with pytest.raises(Unacknowledged):
        device.report(**HERE)
    (receipt,) = of(through, "", tmp_path / "ledger.db").flush()
    assert receipt.acknowledged
    assert counted(through.service) == 1
    assert len({ticket for kind, ticket in through.sent if kind == "reports"}) == 1


def test_a_report_made_without_an_invitation_counts_once_there_is_one(
    through: Through, tmp_path: Path
) -> None:
    device = of(through, "", tmp_path / "ledger.db")
    with pytest.raises(Unacknowledged) as waits:
        device.report(**HERE)
    assert waits.value.problem == "ticket-needed"
    (code,) = invited(through.service)
    (receipt,) = of(through, code, tmp_path / "ledger.db").flush()
    assert receipt.report == waits.value.receipt.report
    assert counted(through.service) == 1


@pytest.mark.parametrize("again", ["day", "round"])
def test_an_invitation_is_for_one_report_and_never_goes_with_a_second(
    through: Through, tmp_path: Path, again: Any
) -> None:
    (code,) = invited(through.service)
    with pytest.raises(InvalidInput, match="one report"):
        of(through, code, tmp_path / "ledger.db", again=again)
    of(through, code, tmp_path / "ledger.db").accept()
    with pytest.raises(Unacknowledged) as waits:
        of(through, "", tmp_path / "ledger.db", again=again).report(**HERE)
    assert waits.value.problem == "ticket-needed"
    assert through.sent[-1] == ("reports", "")


def test_of_two_devices_with_one_invitation_one_reports(through: Through, tmp_path: Path) -> None:
    (code,) = invited(through.service)
    outcomes: list[str] = []

    def run(number: int) -> None:
        try:
            of(through, code, tmp_path / f"{number}.db").report(**HERE)
            outcomes.append("counted")
        except Refused as refused:
            outcomes.append(refused.detail)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["counted", "invitation-used"]
    assert counted(through.service) == 1


@pytest.mark.parametrize(
    "fault",
    ["key", "no key", "signature", "short signature", "no signature", "not an object"],
)
def test_a_cheating_collector_gets_no_report(
    through: Through, tmp_path: Path, monkeypatch, fault: str
) -> None:
    """Another key for each person would mark their tickets; a wrong signature would too."""
    (code,) = invited(through.service)
    honest = Through._answer
    # of a smaller modulus: what is blinded under a larger one may be no number that the service can sign
    assert a_key(2).public.modulus < key_of(through.service).modulus
    other = as_text(a_key(2).public.spki)

    def cheating(answer: httpx.Response) -> Any:
        said = honest(answer)
        body = json.loads(said.body)
        if fault.endswith("key") and "ticket_key" in body:
            body["ticket_key"] = other if fault == "key" else "A" * 400
        elif fault.endswith("signature") and "signature" in body:
            first, rest = body["signature"][0], body["signature"][1:]
            body["signature"] = {
                "signature": ("C" if first == "B" else "B") + rest,
                "no signature": None,
            }.get(fault, body["signature"][:-4])
        elif fault == "not an object" and "signature" in body:
            body = [body]
        return type(said)(said.status, said.media, 0.0, json.dumps(body).encode())

    monkeypatch.setattr(through, "_answer", cheating)
    with pytest.raises(Refused) as refused:
        of(through, code, tmp_path / "ledger.db").report(**HERE)
    said = refused.value.reason, refused.value.detail
    whole = ("answer", "status 200") if fault == "not an object" else ("ticket", said[1])
    assert said == whole
    assert whole[0] == "answer" or said[1] == ("key" if fault == "no key" else "signature")
    assert [kind for kind, _ in through.sent] in ([], ["tickets"])


# --- After the last round


def test_after_the_last_round_tickets_are_for_reports_drawn_before(
    inside: Callable[..., InProcess], tmp_path: Path, monkeypatch
) -> None:
    service = inside(requests_per_minute=0)
    service.campaign(tickets=True, rounds=1)
    one, two, late, later = invited(service, 4)
    early = with_ticket(ticket(service, one))
    spent = with_ticket(ticket(service, two, b"2" * 32))
    drawn, through = report(service), Through(service)
    assert service.post(REPORTS, json=report(service), headers=early).status_code == 200
    with pytest.raises(Unacknowledged):
        of(through, "", tmp_path / "ledger.db").report(**HERE)
    campaigns = service.service.campaigns
    assert campaigns.close_if_large(campaigns.look("lyon"), 0)
    assert service.get("/api/campaigns/lyon").json()["state"] == "finished"
    answer = service.post(INVITATIONS, json={"count": 1}, operator=True)
    assert problem(answer) == (410, "campaign-finished")
    assert service.post(REPORTS, json=drawn, headers=spent).status_code == 200
    (receipt,) = of(through, late, tmp_path / "ledger.db").flush()
    assert receipt.acknowledged
    with pytest.raises(Refused, match="campaign-finished"):  # nobody uses one up for a new report
        of(through, later, tmp_path / "another.db").report(**HERE)
    ends_s = campaigns.look("lyon").accept_until_s
    wanted = wish(later, TicketRequest(bytes(32), key_of(service), "lyon"))
    monkeypatch.setattr(campaigns, "clock", lambda: ends_s + 1.0)
    assert problem(service.post(TICKETS, json=wanted)) == (410, "campaign-finished")
    assert (*service.store.invitations("lyon"), service.store.progress("lyon").reports) == (4, 3, 3)
    described = service.get("/openapi.json").json()["paths"]
    for path in (TICKETS, INVITATIONS):
        operation = described[path.replace("lyon", "{campaign}")]["post"]
        assert "campaign-finished" in operation["responses"]["410"]["description"]
