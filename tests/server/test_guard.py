"""Hosts, origins, keys and headers."""

import pytest

from tests.server.live import Served, serve_fake

HERE = ["localhost", "127.0.0.1", "[::1]", "mine.example"]


def test_only_known_hosts_are_answered() -> None:
    with serve_fake(hosts=HERE) as served:
        for host in ("127.0.0.1:5000", "LOCALHOST", "[::1]:80", "mine.example"):
            assert served.ask("GET", "/health", headers={"host": host}).status == 200, host
        for host in ("evil.example", "127.0.0.1.evil.example", "mine.example@evil.example", "a b"):
            assert served.ask("GET", "/health", headers={"host": host}).status == 400, host


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "file://", "http://127.0.0.1:1"])
def test_other_pages_are_refused(server: Served, origin: str) -> None:
    answer = server.ask("POST", "/translate?q=a&source=en&target=de", headers={"origin": origin})
    assert answer.status == 403
    assert answer.headers["access-control-allow-origin"] is None


@pytest.mark.parametrize("host", ["127.0.0.1:{}", "localhost:{}", "localhost"])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_the_own_page_is_let_through_also_behind_a_proxy_with_https(
    server: Served, scheme: str, host: str
) -> None:
    host = host.format(server.port)
    headers = {"host": host, "origin": f"{scheme}://{host}"}
    assert server.ask("GET", "/health", headers=headers).status == 200


def test_a_page_that_is_allowed_may_ask() -> None:
    with serve_fake(origins=["https://friend.example"]) as served:
        answer = served.ask("GET", "/health", headers={"origin": "https://friend.example"})
        assert answer.headers["access-control-allow-origin"] == "https://friend.example"
        assert "Origin" in answer.headers["vary"]
        assert answer.headers["access-control-allow-credentials"] is None
        asked = {"origin": "https://friend.example", "access-control-request-method": "POST"}
        answer = served.ask("OPTIONS", "/translate", headers=asked)
        assert answer.status == 200
        assert "content-type" in answer.headers["access-control-allow-headers"].lower()
        other = served.ask("GET", "/health", headers={"origin": "https://friend.example.evil"})
        assert other.status == 403
    with serve_fake(origins=["*"]) as served:
        assert served.ask("GET", "/health", headers={"origin": "http://any"}).status == 200


def test_the_usual_port_of_an_origin_may_be_named() -> None:
    origins = ["https://a.example:443", "http://[::1]:80", "https://b.example:80"]
    with serve_fake(origins=origins) as served:
        for origin in ("https://a.example", "http://[::1]", "https://b.example:80"):
            assert served.ask("GET", "/health", headers={"origin": origin}).status == 200, origin
        other = served.ask("GET", "/health", headers={"origin": "https://b.example"})
        assert other.status == 403


def test_any_host_of_an_origin_may_be_allowed() -> None:
    origins = ["moz-extension://*", "https://*.Friend.example"]  # browsers write small letters
    with serve_fake(origins=origins) as served:
        for origin in ("moz-extension://9d2a-11", "https://a.b.friend.example"):
            answer = served.ask("GET", "/health", headers={"origin": origin})
            assert answer.status == 200, origin
            assert answer.headers["access-control-allow-origin"] == origin
        for origin in ("moz-extension://", "https://friend.example", "https://a.friend.example.x"):
            answer = served.ask("GET", "/health", headers={"origin": origin})
            assert answer.status == 403, origin


@pytest.mark.parametrize("removed", [True, False])
@pytest.mark.parametrize("prefix", ["/mt", "/a/b/", "/translate"])
def test_a_proxy_may_put_the_server_below_any_path(
    server: Served, prefix: str, removed: bool
) -> None:
    for path in ("/", "/page/page.css", "/languages", "/translate?q=1&source=en&target=de"):
        method = "POST" if "?" in path else "GET"
        sent = path if removed else prefix.rstrip("/") + path
        answer = server.ask(method, sent, headers={"x-forwarded-prefix": prefix})
        assert answer.status == 200, path
        assert answer.content == server.ask(method, path).content


@pytest.mark.parametrize("path", ["/", "/health", "/nothing", "/page/page.js"])
def test_every_answer_forbids_what_the_page_does_not_need(server: Served, path: str) -> None:
    headers = server.ask("GET", path).headers
    assert headers["content-security-policy"].startswith("default-src 'none';")
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["server"] is None


def test_a_key_is_asked_for_where_work_is_done() -> None:
    request = {"q": "a", "source": "en", "target": "de"}
    keys = {"secret": "alice", "schlüssel": "bob"}
    with serve_fake(keys=lambda: keys) as served:
        wrong: list[object] = [None, "", "Secret", "secre", "secret "]
        for key in wrong:
            for path in ("/translate", "/detect", "/attention"):
                answer = served.post(path, **request, api_key=key)
                assert (answer.status, answer.json) == (403, {"error": "Invalid API key"})
        assert served.post("/translate", **request).status == 403
        assert served.translator.calls == []
        for key in ("secret", "schlüssel"):
            assert served.post("/translate", **request, api_key=key).status == 200
        query = "q=a&source=en&target=de&api_key=secret"
        assert served.ask("POST", f"/translate?{query}").status == 200
        for path in ("/languages", "/frontend/settings", "/health"):
            assert served.ask("GET", path).status == 200
        settings = served.ask("GET", "/frontend/settings").json
        assert (settings["apiKeys"], settings["keyRequired"]) == (True, True)
        metrics = served.ask("GET", "/metrics").content
        assert b'seq2seq_key_requests_total{name="alice"} 2.0' in metrics
        assert b"secret" not in metrics
        del keys["secret"]
        assert served.post("/translate", **request, api_key="secret").status == 403
        keys.clear()
        assert served.post("/translate", **request).status == 403
