"""Every producer of errors gives the one shape: problem+json with a stable type."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from starlette.requests import Request

from geoveil.server.dashboard import OPERATIONS
from geoveil.server.problem import BASE, PROBLEMS, Problem, problem_of
from geoveil.store import StoreFailed
from server.conftest import InProcess
from server.live import LYON, TOKEN, cells_of, new_id
from server.rounds_support import Clock
from store.memory import MemoryStore

REPORTS = "/api/campaigns/lyon/reports"


def assert_problem(answer: httpx.Response, name: str) -> None:
    """The one shape an error may have."""
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    told = {"field"} if name == "invalid-campaign" else set()
    assert set(body) - told == {"type", "title", "status", "detail"}
    assert body["type"] == BASE + name
    assert body["status"] == answer.status_code == PROBLEMS[name].status
    assert body["title"] == PROBLEMS[name].title
    assert body["detail"]
    assert ("retry-after" in answer.headers) == (PROBLEMS[name].retry_after_s is not None)
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.fixture(scope="module")
def untouched() -> Iterator[InProcess]:
    """An application with the campaign ``lyon``, for all that is refused: nothing of it changes anything."""
    made = InProcess(requests_per_minute=100_000)
    try:
        made.campaign()
        before = made.get("/api/campaigns", operator=True).content
        yield made
        assert made.get("/api/campaigns", operator=True).content == before
    finally:
        made.close()


@pytest.mark.parametrize(
    ("method", "path", "name"),
    [
        ("GET", "/nothing", "not-found"),
        ("GET", "/api/campaigns/", "not-found"),
        ("GET", "/api/campaigns/lyon/", "not-found"),
        ("GET", "/api/campaigns/lyon/nothing", "not-found"),
        ("GET", "/api/campaigns/lyon/estimate.exe", "not-found"),
        ("POST", "/api/campaigns/a/b/reports", "not-found"),
        ("PUT", "/api/campaigns/lyon", "method-not-allowed"),
        ("GET", "/api/campaigns/lyon/reports", "method-not-allowed"),
        ("PUT", "/api/campaigns/lyon/reports", "method-not-allowed"),
        ("OPTIONS", "/api/campaigns", "method-not-allowed"),
        ("POST", "/healthz", "method-not-allowed"),
        ("GET", "/api/campaigns/nice", "unknown-campaign"),
        ("GET", "/api/campaigns/%00", "not-found"),
        ("GET", "/api/campaigns/lyon%0A", "not-found"),
        ("GET", "/healthz%0A", "not-found"),
        ("GET", "/api/campaigns/lyon%7F", "not-found"),
        ("POST", "/api/campaigns/lyon/reports%0A", "not-found"),
        ("POST", "/api/campaigns/lyon%0A/reports", "not-found"),
        ("POST", "/api/campaigns/lyon/rounds%0A", "not-found"),
        ("GET", "/api/campaigns/..%2f", "not-found"),
        ("GET", "/api/campaigns/LYON'; --", "unknown-campaign"),
        ("GET", "/api/campaigns/nice/mechanism", "unknown-campaign"),
        ("GET", "/api/campaigns/nice/estimate", "unknown-campaign"),
        ("GET", "/api/campaigns/nice/events", "unknown-campaign"),
        ("GET", "/c/nice", "unknown-campaign"),
        ("GET", "/api/campaigns/lyon/estimate", "no-estimate-yet"),
        ("GET", "/api/campaigns/lyon/rounds/1/estimate.csv", "no-estimate-yet"),
        ("GET", "/api/campaigns/lyon/rounds/7/estimate", "unknown-round"),
        ("GET", "/api/campaigns/lyon/rounds/0/estimate", "unknown-round"),
        ("GET", "/api/campaigns/lyon/rounds/x/estimate", "unknown-round"),
        ("GET", "/api/campaigns/lyon/rounds/99999999999/estimate", "unknown-round"),
        ("GET", "/api/campaigns/lyon/estimate?round=x", "malformed-body"),
        ("GET", "/api/campaigns/lyon/estimate?round=9", "unknown-round"),
    ],
)
def test_addresses(untouched: InProcess, method: str, path: str, name: str) -> None:
    assert_problem(untouched.request(method, path), name)


def test_an_operation_without_a_handler_is_not_a_fault(service: InProcess) -> None:
    upload = next(each for each in OPERATIONS if each.handler is None)
    scope = {"type": "http", "client": ("198.51.100.7", 1), "headers": []}
    answer = service.run(service.application.respond(upload, Request(scope)))
    assert answer.status_code == 404


def test_the_methods_that_are_allowed_are_named(untouched: InProcess) -> None:
    allowed = untouched.request("DELETE", "/api/campaigns").headers["allow"]
    assert set(allowed.split(", ")) == {"GET", "HEAD", "POST"}


@pytest.mark.parametrize(
    "authorization", [None, "", "Bearer", "Bearer x", "Basic eDp5", "Bearer " + "x" * 5000]
)
@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/api/campaigns"), ("POST", "/api/campaigns"), ("POST", "/api/campaigns/lyon/rounds")],
)
def test_operators_only(
    untouched: InProcess, method: str, path: str, authorization: str | None
) -> None:
    headers = {} if authorization is None else {"authorization": authorization}
    answer = untouched.request(method, path, headers=headers, json=LYON)
    assert_problem(answer, "unauthorised")
    assert answer.headers["www-authenticate"].startswith("Bearer")


def test_not_acceptable(untouched: InProcess) -> None:
    answer = untouched.get("/api/campaigns/lyon/estimate", headers={"accept": "image/png"})
    assert_problem(answer, "not-acceptable")
    assert "text/csv" in answer.json()["detail"]


HEX = "0" * 64
BOMBS: list[Any] = [
    b"",
    b"{",
    b"null",
    b"[]",
    b'"x"',
    b"\xff\xfe{}",
    b'{"mechanism": "\xff"}',
    b"[" * 200_000,
    b'{"reports": ' + b"[" * 200_000,
    b'{"a": ' * 30_000,
    b'{"mechanism": "%b", "id": "%b", "cell": NaN}' % (HEX.encode(), HEX[:32].encode()),
    b'{"mechanism": "%b", "id": "%b", "cell": true}' % (HEX.encode(), HEX[:32].encode()),
    b'{"mechanism": "%b", "id": "%b", "cell": 1.0}' % (HEX.encode(), HEX[:32].encode()),
    b'{"mechanism": "%b", "id": "%b", "cell": "1"}' % (HEX.encode(), HEX[:32].encode()),
    b'{"mechanism": "%b", "id": "%b", "cell": -1}' % (HEX.encode(), HEX[:32].encode()),
    b'{"mechanism": "%b", "id": "%b", "cell": 1e400}' % (HEX.encode(), HEX[:32].encode()),
    b'{"mechanism": "%b", "id": "%b", "cell": 9%b}'
    % (HEX.encode(), HEX[:32].encode(), b"9" * 5000),
    b'{"mechanism": "%b", "id": "%b", "cell": 1, "lat": 45.7}' % (HEX.encode(), HEX[:32].encode()),
    b'{"mechanism": "%b", "id": "%b"}' % (HEX.encode(), HEX[:32].encode()),
    b'{"mechanism": "%b", "id": "%b\\n", "cell": 1}' % (HEX.encode(), HEX[:31].encode()),
    b'{"mechanism": "%b", "id": "%b", "cell": 1}' % (HEX.encode(), b"A" * 32),
    b'{"reports": []}',
    b'{"reports": [{}]}',
    b'{"reports": [' + b",".join([b"{}"] * 1001) + b"]}",
]


@pytest.mark.parametrize("body", BOMBS, ids=lambda body: repr(body[:24]))
def test_bodies_that_are_no_reports(untouched: InProcess, body: bytes) -> None:
    assert_problem(untouched.post(REPORTS, content=body), "malformed-body")


@pytest.mark.parametrize(
    "body",
    [body for body in BOMBS if b"reports" not in body[:12]],
    ids=lambda body: repr(body[:24]),
)
def test_bodies_that_are_no_campaigns(untouched: InProcess, body: bytes) -> None:
    assert_problem(untouched.post("/api/campaigns", content=body, operator=True), "malformed-body")


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        (
            "POST /api/campaigns",
            {"slots": "day"},
            "`$.slots`; it must be one of hour, weekday-hour",
        ),
        (
            "POST /api/campaigns",
            {"nam": "x"},
            "field `nam`; it must be one of name, box, cell_km, ",
        ),
        ("POST /api/campaigns", {"slots": {"x": 1}}, "field `x` - at `$.slots`"),
        (
            "PATCH /api/campaigns/lyon",
            {"state": "stopped"},
            "must be one of running, paused, ended",
        ),
    ],
)
def test_unknown_words_are_answered_with_those_there_are(
    untouched: InProcess, path: str, body: Any, said: str
) -> None:
    answer = untouched.request(*path.split(), json=body, operator=True)
    assert_problem(answer, "malformed-body")
    assert said in answer.json()["detail"]
    assert ("one of" in said) is ("one of" in answer.json()["detail"])


@pytest.mark.parametrize(
    "changes",
    [
        {"name": ""},
        {"name": "x" * 300},
        {"box": [1, 2, 3, 4][::-1]},
        {"box": [0, 0, 91, 1]},
        {"cell_km": 0.0},
        {"cell_km": 0.011},
        {"epsilon_per_km": -1},
        {"camouflage": 2},
        {"round_size": 0},
        {"round_size": 1},
        {"minimum_reports": 0},
        {"id": "Not An Id"},
        {"rounds": 0},
    ],
    ids=str,
)
def test_campaigns_that_cannot_be(untouched: InProcess, changes: dict[str, Any]) -> None:
    answer = untouched.post("/api/campaigns", json=LYON | {"id": "other"} | changes, operator=True)
    assert_problem(answer, "invalid-campaign")


def test_a_campaign_that_exists(untouched: InProcess) -> None:
    answer = untouched.post("/api/campaigns", json=LYON, operator=True)
    assert_problem(answer, "campaign-exists")


def test_a_round_that_is_too_small(untouched: InProcess) -> None:
    answer = untouched.post("/api/campaigns/lyon/rounds", operator=True)
    assert_problem(answer, "round-too-small")


@pytest.mark.parametrize("path", [REPORTS, "/api/campaigns"])
def test_bodies_that_are_too_long(untouched: InProcess, path: str) -> None:
    answer = untouched.post(path, content=b" " * 262_145, operator=True)
    assert_problem(answer, "body-too-large")
    assert answer.headers["connection"] == "close"


@pytest.mark.parametrize("path", [REPORTS, "/api/campaigns"])
@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": "text/html"},
        {"content-type": "application/xml"},
        {"content-encoding": "gzip"},
    ],
    ids=str,
)
def test_bodies_of_other_kinds(untouched: InProcess, path: str, headers: dict[str, str]) -> None:
    answer = untouched.post(path, content=b"{}", headers=headers, operator=True)
    assert_problem(answer, "unsupported-media-type")


def report(service: InProcess, **changes: Any) -> dict[str, Any]:
    return {"mechanism": service.mechanism()["id"], "id": new_id(), "cell": 0} | changes


def test_reports_that_do_not_count(service: InProcess) -> None:
    cells = cells_of(service.mechanism())
    cases = {
        "cell-out-of-range": report(service, cell=cells),
        "unknown-mechanism": report(service, mechanism=HEX),
    }
    for name, body in cases.items():
        assert_problem(service.post(REPORTS, json=body), name)
    assert_problem(
        service.post("/api/campaigns/nice/reports", json=report(service)), "unknown-campaign"
    )
    assert_problem(
        service.post("/api/campaigns/a b/reports", json=report(service)), "unknown-campaign"
    )
    answer = service.post(REPORTS, json={"reports": [*cases.values(), report(service)]})
    results = answer.json()["results"]
    assert [result["status"] for result in results] == ["refused", "refused", "counted"]
    assert [result["problem"]["type"] for result in results[:2]] == [BASE + name for name in cases]


def test_a_mechanism_of_another_campaign(service: InProcess) -> None:
    service.campaign(id="paris")
    body = report(service)
    assert_problem(service.post("/api/campaigns/paris/reports", json=body), "unknown-mechanism")


def test_a_mechanism_that_has_expired(inside: Callable[..., InProcess]) -> None:
    clock = Clock()
    service = inside(clock=clock)
    service.campaign(mechanism_hours=1.0, grace_hours=1.0)
    body = report(service)
    clock.now += 3600 + 3599
    assert service.post(REPORTS, json=body).status_code == 200
    clock.now += 2
    assert_problem(
        service.post(REPORTS, json=report(service, mechanism=body["mechanism"])),
        "mechanism-expired",
    )
    for back_s, certain in ((10 * 31_557_600, True), (0, False)):
        clock.now, clock.certain = clock.now - back_s, certain
        late = report(service, mechanism=body["mechanism"])
        assert service.post(REPORTS, json=late).status_code == 200  # its ids are still kept


class Broken(MemoryStore):
    """A store that stops working, or has a fault, when told so."""

    error: Exception | None = None

    def __getattribute__(self, name: str) -> Any:
        error = object.__getattribute__(self, "error")
        public = not name.startswith("_") and name not in ("error", "close")
        if error is not None and public:
            raise error
        return super().__getattribute__(name)


ALL = [
    ("GET", "/api/campaigns"), ("GET", "/readyz"), ("GET", "/api/campaigns/lyon/estimate"),
    ("POST", "/api/campaigns/lyon/rounds"), ("POST", REPORTS), ("POST", "/api/campaigns"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path"), ALL)
@pytest.mark.parametrize(
    ("error", "name"),
    [(StoreFailed("disk full"), "storage-unavailable"), (KeyError("secret"), "internal")],
)
def test_a_store_that_fails(
    inside: Callable[..., InProcess], method: str, path: str, error: Exception, name: str,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    store = Broken()
    service = inside(store)
    service.campaign()
    body: Any = report(service) if path == REPORTS else LYON | {"id": "other"}
    service.service.tokens.check(f"Bearer {TOKEN}")
    assert service.post(REPORTS, json=report(service)).status_code == 200
    store.error = error
    try:
        answer = service.request(method, path, json=body, operator=True)
    finally:
        store.error = None
    expected = "storage-unavailable" if path == REPORTS else name
    assert_problem(answer, expected)
    assert "secret" not in answer.text + capfd.readouterr().err


def test_nothing_foreseen_is_internal_and_everything_named_is_listed() -> None:
    assert problem_of(ZeroDivisionError()).name == "internal"
    with pytest.raises(KeyError):
        Problem("no-such-problem")


def test_a_problem_comes_whole_from_another_process() -> None:
    told = Problem("invalid-campaign", "it must be less", headers={"x": "y"}, field="cell_km")
    assert vars(pickle.loads(pickle.dumps(told))) == vars(told)
