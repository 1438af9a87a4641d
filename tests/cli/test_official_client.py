"""The official A2A client, as installed, at the door of a real session: nothing stands in for either side."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from a2a.client import A2ACardResolver, Client, ClientConfig, create_client
from a2a.client.errors import A2AClientError
from a2a.types import (
    AgentCard,
    CancelTaskRequest,
    GetExtendedAgentCardRequest,
    GetTaskRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskState,
)
from a2a.utils.errors import ExtendedAgentCardNotConfiguredError, TaskNotCancelableError, TaskNotFoundError

from tests.cli.conftest import Hosted, Hosts

DOOR = "https://docs.murmur.nexus/reference/agent-card/#murmur-door-v1"
STREAM = "https://docs.murmur.nexus/reference/streaming-protocol/#murmur-stream-v1"
CAPSULE = "https://docs.murmur.nexus/reference/agent-card/#murmur-capsule-v1"
COMMAND = """read word
[ "$word" = slow ] && { echo up >up; cat gate; }
[ "$word" = step ] && { echo one; echo up >up; cat gate; echo two; }
echo "did $word"; [ "$word" != ill ]"""
"""Tells through `up` that a slow task runs, which it then does until `gate` is opened and closed."""
AUTHENTICATION = {"scheme": "bearer", "credentials": {"watcher": {"scopes": ["tasks/get"]}}}

Start = Callable[[bool], Hosted]


@pytest.fixture
def start(hosts: Hosts, tmp_path: Path) -> Start:
    """Start a session of a public or an authenticated capsule that queues its tasks."""
    for name in ("up", "gate"):
        os.mkfifo(tmp_path / name)

    def started(authenticated: bool) -> Hosted:
        manifest = {
            "name": "worker",
            "version": "0.1.0",
            "process": {"command": ["sh", "-c", COMMAND]},
            "lifecycle": {"task_acceptance": "queue", "after_task": "sleep", "queue_depth": 5},
        }
        network = {"network": {"authentication": AUTHENTICATION}} if authenticated else {}
        path = tmp_path / "murmur.yaml"
        path.write_text(json.dumps(manifest | network))  # JSON is YAML.
        return hosts.from_manifest(path, "--readiness-tokens")

    return started


@pytest.fixture(params=[False, True], ids=["public", "with a token"])
def door(request: pytest.FixtureRequest, start: Start) -> tuple[Hosted, str | None]:
    """Start a session; return it and the token that its calls need."""
    hosted = start(request.param)
    return hosted, operator(hosted) if request.param else None


def operator(hosted: Hosted) -> str:
    return str(hosted.ready["tokens"]["operator"])


@asynccontextmanager
async def called(
    hosted: Hosted, token: str | None, transport: httpx.AsyncBaseTransport | None = None
) -> AsyncIterator[tuple[AgentCard, Client]]:
    """Read a door's public card, without the token, and make the client that it leads to."""
    url = f"http://{hosted.ready['url']}"
    async with httpx.AsyncClient(timeout=20) as reader:
        card = await A2ACardResolver(reader, url).get_agent_card()
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with httpx.AsyncClient(headers=headers, timeout=20, transport=transport) as http:
        client = await create_client(card, ClientConfig(httpx_client=http, streaming=transport is not None))
        try:
            yield card, client
        finally:
            await client.close()


def calling(
    hosted: Hosted,
    token: str | None,
    conversation: Callable[[AgentCard, Client], Awaitable[None]],
    transport: httpx.AsyncBaseTransport | None = None,
) -> None:
    """Hold one conversation with a door; with a transport of its own the client streams."""

    async def hold() -> None:
        async with called(hosted, token, transport) as (card, client):
            await conversation(card, client)

    asyncio.run(hold())


async def send(client: Client, text: str, *, blocking: bool = True) -> Task:
    message = Message(message_id=f"msg_{text}", role=Role.ROLE_USER, parts=[Part(text=text)])
    configuration = SendMessageConfiguration(return_immediately=not blocking)
    answers = [
        each async for each in client.send_message(SendMessageRequest(message=message, configuration=configuration))
    ]
    assert len(answers) == 1
    return answers[0].task


async def slow_task(client: Client, work: Path) -> Task:
    """Send a task that does not end by itself, and return once it runs."""
    task = await send(client, "slow", blocking=False)
    assert task.status.state == TaskState.TASK_STATE_SUBMITTED
    assert await asyncio.to_thread((work / "up").read_text) == "up\n"
    return task


def result(task: Task) -> str:
    (artifact,) = task.artifacts
    (part,) = artifact.parts
    return str(part.text)


def extensions(card: AgentCard) -> list[str]:
    return [each.uri for each in card.capabilities.extensions]


def test_the_public_card_of_a_public_door_names_its_session(start: Start) -> None:
    hosted = start(False)

    async def read(card: AgentCard, _: Client) -> None:
        assert (card.name, card.version) == ("worker", "0.1.0")
        assert card.description == "Murmur capsule worker 0.1.0"
        (interface,) = card.supported_interfaces
        assert (interface.url, interface.protocol_binding) == (f"http://{hosted.ready['url']}", "JSONRPC")
        assert interface.protocol_version == "0.3"
        assert [skill.id for skill in card.skills] == ["task"]
        assert not card.capabilities.extended_agent_card
        assert not card.security_schemes
        assert extensions(card) == [DOOR, CAPSULE, STREAM]
        assert card.capabilities.extensions[1].params["sessionId"] == hosted.session_id

    calling(hosted, None, read)


def test_the_public_card_of_an_authenticated_door_asks_for_a_token_and_keeps_its_session(start: Start) -> None:
    hosted = start(True)

    async def read(card: AgentCard, _: Client) -> None:
        assert card.capabilities.extended_agent_card
        assert card.security_schemes["bearer"].http_auth_security_scheme.scheme == "Bearer"
        assert [list(each.schemes) for each in card.security_requirements] == [["bearer"]]
        assert extensions(card) == [DOOR, STREAM]
        assert hosted.session_id not in str(card)

    calling(hosted, None, read)


def test_the_extended_card_names_the_session_to_a_caller_with_a_token(start: Start) -> None:
    hosted = start(True)

    async def read(card: AgentCard, client: Client) -> None:
        extended = await client.get_extended_agent_card(GetExtendedAgentCardRequest())
        assert (extended.name, extended.version, extended.description) == (card.name, card.version, card.description)
        assert [each.url for each in extended.supported_interfaces] == [f"http://{hosted.ready['url']}"]
        assert extensions(extended) == [DOOR, CAPSULE, STREAM]
        assert extended.capabilities.extensions[1].params["sessionId"] == hosted.session_id

    calling(hosted, operator(hosted), read)


@pytest.mark.parametrize("token", [None, "mdt1.x.y"], ids=["none", "a wrong one"])
def test_an_authenticated_door_answers_no_call_without_its_token(start: Start, token: str | None) -> None:
    async def read(_: AgentCard, client: Client) -> None:
        for refused in (
            client.get_extended_agent_card(GetExtendedAgentCardRequest()),
            send(client, "x"),
            client.get_task(GetTaskRequest(id="tsk_x")),
            client.cancel_task(CancelTaskRequest(id="tsk_x")),
        ):
            with pytest.raises(A2AClientError, match="401"):
                await refused

    calling(start(True), token, read)


def test_a_credential_reaches_its_scopes_and_nothing_else(start: Start) -> None:
    hosted = start(True)

    async def read(_: AgentCard, client: Client) -> None:
        with pytest.raises(A2AClientError, match="403"):
            await send(client, "x")
        with pytest.raises(TaskNotFoundError):
            await client.get_task(GetTaskRequest(id="tsk_x"))

    calling(hosted, str(hosted.ready["tokens"]["watcher"]), read)


def test_a_public_door_has_no_extended_card(start: Start) -> None:
    hosted = start(False)

    async def read(card: AgentCard, client: Client) -> None:
        # The client itself does not ask a door whose card promises none, so it is made to believe in one.
        card.capabilities.extended_agent_card = True
        with pytest.raises(ExtendedAgentCardNotConfiguredError):
            await client.get_extended_agent_card(GetExtendedAgentCardRequest())

    calling(hosted, None, read)


@pytest.mark.spec("M1")
def test_a_blocking_message_is_answered_with_the_ended_task(door: tuple[Hosted, str | None]) -> None:
    async def talk(_: AgentCard, client: Client) -> None:
        task = await send(client, "well")
        assert task.status.state == TaskState.TASK_STATE_COMPLETED
        assert result(task) == "did well\n"
        assert await client.get_task(GetTaskRequest(id=task.id)) == task
        failed = await send(client, "ill")
        assert failed.status.state == TaskState.TASK_STATE_FAILED
        assert failed.status.message.parts[0].text.startswith("the command ended with exit status: 1")
        assert result(failed) == "did ill\n"

    calling(*door, talk)


@pytest.mark.spec("M1")
def test_a_message_that_does_not_block_is_answered_at_once_and_its_task_got_later(
    door: tuple[Hosted, str | None], tmp_path: Path
) -> None:
    async def talk(_: AgentCard, client: Client) -> None:
        task = await slow_task(client, tmp_path)
        running = await client.get_task(GetTaskRequest(id=task.id))
        assert running.status.state == TaskState.TASK_STATE_WORKING
        behind = asyncio.create_task(send(client, "well"))
        await asyncio.to_thread((tmp_path / "gate").write_text, "")
        assert result(await behind) == "did well\n"
        ended = await client.get_task(GetTaskRequest(id=task.id))
        assert (ended.id, ended.context_id) == (task.id, task.context_id)
        assert ended.status.state == TaskState.TASK_STATE_COMPLETED
        assert result(ended) == "did slow\n"

    calling(*door, talk)


@pytest.mark.spec("E1")
def test_a_task_is_cancelled_and_stays_so(door: tuple[Hosted, str | None], tmp_path: Path) -> None:
    async def talk(_: AgentCard, client: Client) -> None:
        running = await slow_task(client, tmp_path)
        waiting = await send(client, "well", blocking=False)
        for task in (waiting, running, running):
            canceled = await client.cancel_task(CancelTaskRequest(id=task.id))
            assert (canceled.id, canceled.status.state) == (task.id, TaskState.TASK_STATE_CANCELED)
            got = await client.get_task(GetTaskRequest(id=task.id))
            assert got.status.state == TaskState.TASK_STATE_CANCELED
        over = await send(client, "well")
        with pytest.raises(TaskNotCancelableError):
            await client.cancel_task(CancelTaskRequest(id=over.id))
        with pytest.raises(TaskNotFoundError):
            await client.cancel_task(CancelTaskRequest(id="tsk_x"))

    calling(*door, talk)


class Cut(httpx.AsyncHTTPTransport):
    """A connection that breaks off on request; and the client's `tasks/resubscribe` is Murmur's `stream/watch`."""

    def __init__(self) -> None:
        super().__init__()
        self.called: list[str] = []
        self.open: httpx.AsyncByteStream | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        call = json.loads(request.content)
        if call["method"] == "tasks/resubscribe":
            call["method"] = "stream/watch"
        self.called.append(call["method"])
        content = json.dumps(call).encode()
        headers = {**request.headers, "content-length": str(len(content))}
        sent = httpx.Request(request.method, request.url, headers=headers, content=content)
        response = await super().handle_async_request(sent)
        assert isinstance(response.stream, httpx.AsyncByteStream)
        self.open = response.stream
        return response

    async def cut(self) -> None:
        assert self.open is not None
        await self.open.aclose()


def streaming(client: Client, text: str) -> AsyncIterator[StreamResponse]:
    message = Message(message_id=f"msg_{text}", role=Role.ROLE_USER, parts=[Part(text=text)])
    return client.send_message(SendMessageRequest(message=message))


def said(events: list[StreamResponse]) -> str:
    """Put the pieces of a task's result together, as the client's own users do."""
    text = ""
    for update in [each.artifact_update for each in events if each.HasField("artifact_update")]:
        if update.artifact.name == "result":
            piece = "".join(part.text for part in update.artifact.parts)
            text = text + piece if update.append else piece
    return text


def states(events: list[StreamResponse]) -> list[str]:
    updates = [each.status_update for each in events if each.HasField("status_update")]
    return [TaskState.Name(each.status.state).removeprefix("TASK_STATE_").lower() for each in updates]


@pytest.mark.spec("M1")
@pytest.mark.parametrize(("word", "end"), [("well", "completed"), ("ill", "failed")])
def test_a_task_is_streamed_to_its_end(door: tuple[Hosted, str | None], word: str, end: str) -> None:
    async def talk(card: AgentCard, client: Client) -> None:
        assert card.capabilities.streaming
        events = [each async for each in streaming(client, word)]
        assert events[0].task.status.state == TaskState.TASK_STATE_SUBMITTED
        assert states(events) == ["working", end]
        assert said(events) == f"did {word}\n"
        assert events[-1].HasField("status_update")
        task = await client.get_task(GetTaskRequest(id=events[0].task.id))
        assert result(task) == said(events)
        assert task.status.state == events[-1].status_update.status.state

    calling(*door, talk, Cut())


@pytest.mark.spec("M1")
def test_after_a_cut_the_same_task_is_followed_to_its_end_by_watching(
    door: tuple[Hosted, str | None], tmp_path: Path
) -> None:
    connection = Cut()

    async def talk(_: AgentCard, client: Client) -> None:
        before = []
        async for each in streaming(client, "step"):
            before.append(each)
            if each.HasField("artifact_update"):
                break
        task_id = before[0].task.id
        assert said(before) == "one\n"
        assert await asyncio.to_thread((tmp_path / "up").read_text) == "up\n"
        await connection.cut()
        after: list[StreamResponse] = []
        async for each in client.subscribe(SubscribeToTaskRequest(id=task_id)):
            if not after:
                # It is there again, and only then does the task go on.
                await asyncio.to_thread((tmp_path / "gate").write_text, "")
            after.append(each)
        assert after[0].task.id == task_id
        assert after[0].task.status.state == TaskState.TASK_STATE_WORKING
        assert said(after) == "one\ntwo\ndid step\n"
        assert states(after)[-1] == "completed"
        assert connection.called == ["message/stream", "stream/watch"]

    calling(*door, talk, connection)


@pytest.mark.spec("I4")
def test_a_stream_is_opened_to_nobody_without_its_token(start: Start) -> None:
    async def read(_: AgentCard, client: Client) -> None:
        with pytest.raises(A2AClientError, match="401"):
            [each async for each in streaming(client, "well")]

    calling(start(True), None, read, Cut())
