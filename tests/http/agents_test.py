"""The real Agents SDK of OpenAI, which asks by /v1/responses."""

import asyncio
import contextlib
from typing import Any, Literal

from tests.http.client_library import main
from tests.http.conversation_rig import MODEL, ConversationTest
from tests.http.openai_rig import REQUIREMENTS

with contextlib.suppress(ImportError):  # before main() has found a Python that has it
    import agents
    import openai

    @agents.function_tool
    def look(animal: Literal["fox", "cat"]) -> str:
        """Looks for an animal."""
        return f"There is a {animal} behind the tree"


QUESTION = "Tell me of a little fox."
STOP = [".", "e "]  # no call has one, and every tale has


class AgentsTest(ConversationTest):
    @contextlib.asynccontextmanager
    async def agent(self, **settings: Any) -> Any:
        agents.set_tracing_disabled(True)
        address = f"http://{self.front.address}/v1"
        async with openai.AsyncOpenAI(base_url=address, api_key="none", max_retries=0) as client:
            yield agents.Agent(
                name="Looker",
                instructions="Look before you tell.",
                model=agents.OpenAIResponsesModel(model=MODEL, openai_client=client),
                tools=[look],
                model_settings=agents.ModelSettings(
                    temperature=0,
                    max_tokens=400,
                    parallel_tool_calls=False,
                    extra_body={"stop": STOP, "chat_template_kwargs": {"thinking": False}},
                    **settings,
                ),
            )

    def check(self, run: Any) -> None:
        """A call, its result, and a tale after them."""
        called, result, told = run.new_items
        self.assertEqual(
            [item.type for item in run.new_items], ["tool_call_item", "tool_call_output_item", "message_output_item"]
        )
        self.assertEqual(called.raw_item.name, "look")
        self.assertIn("behind the tree", result.output)
        self.assertEqual(told.raw_item.content[0].text, run.final_output)
        self.assertNotEqual(run.final_output, "")

    def test_a_tool_is_called_and_its_result_told(self) -> None:
        async def run() -> Any:
            async with self.agent(tool_choice="required") as agent:
                return await agents.Runner.run(agent, QUESTION)

        self.check(asyncio.run(run()))

    def test_a_run_is_streamed(self) -> None:
        async def run() -> tuple[Any, str]:
            async with self.agent(tool_choice="required") as agent:
                stream = agents.Runner.run_streamed(agent, QUESTION)
                raw = [event.data async for event in stream.stream_events() if event.type == "raw_response_event"]
                return stream, "".join(each.delta for each in raw if each.type == "response.output_text.delta")

        stream, told = asyncio.run(run())
        self.check(stream)
        self.assertEqual(told, stream.final_output)

    def test_a_conversation_goes_on(self) -> None:
        async def run() -> Any:
            async with self.agent(tool_choice="required") as agent:
                first = await agents.Runner.run(agent, QUESTION)
                return await agents.Runner.run(agent, [*first.to_input_list(), {"role": "user", "content": "And then?"}])

        self.check(asyncio.run(run()))


if __name__ == "__main__":
    main("tests.http.agents_test", "agents", (*REQUIREMENTS, "openai-agents==0.24.0"))
