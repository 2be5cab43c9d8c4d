"""An agent on somebody else's framework (OpenAI's own client), and a task that lets it drive itself."""

import asyncio

import fakes

import coevo
from coevo.records import Batch, Context, EpisodeResult, Example


def chat_twice(base_url, key, model, question):
    """A conversation of two turns, by a plain function that has never heard of coevo."""
    import openai

    with openai.OpenAI(base_url=base_url, api_key=key, timeout=180) as client:
        messages = [{"role": "user", "content": question}]
        first = client.chat.completions.create(model=model, messages=messages)
        messages.append(first.choices[0].message)
        messages.append({"role": "user", "content": "Say more."})
        second = client.chat.completions.create(model=model, messages=messages, temperature=0.5, max_tokens=4)
        return first.choices[0].message.content, second.choices[0].message.content


class ChatTask:
    """Letters late in the alphabet are better, in two turns."""

    def brief(self):
        return coevo.Brief("chat", "Chat", "Say anything.", failure=0.0, max_new_tokens=6, max_calls=2)

    def examples(self, split):
        return [Example("0"), Example("1")]

    def episode(self, example, context):
        raise AssertionError("this task drives itself")

    async def run(self, example, context, policy):
        async with policy.endpoint() as served:
            said = await asyncio.to_thread(
                chat_twice, served.base_url, served.key, served.model, f"Question {example.id}"
            )
        text = "".join(said)
        if not text:
            return EpisodeResult("no_answer")
        score = sum(ord(letter) % 32 for letter in text) / len(text)
        return EpisodeResult("ok", score, {"objective": score}, {"answer": text})


class AdvisedTask(fakes.LettersTask):
    """A task whose context is advice, which it knows how to tell a model."""

    def brief(self):
        return coevo.Brief(
            "advised", "Advised", "Say anything.", failure=0.0, max_new_tokens=6, components={"advice": "Be kind."}
        )

    def system(self, context):
        return context.components["advice"]


class AdviceUpdater:
    """Learns a sentence a generation."""

    def __init__(self, *, services):
        self.services, self.advice, self.asked = services, ["Be kind."], -1

    def context(self):
        return Context({"advice": " ".join(self.advice)})

    def ask(self):
        if self.asked == self.services.generation:
            return None
        self.asked = self.services.generation
        return Batch((self.context(),))

    def tell(self, buffer):
        self.advice.append(f'Lesson {len(self.advice)}: say "é" {{% if %}} 😀.')

    def learned(self):
        return self.context()

    def state_dict(self):
        return {"advice": self.advice, "asked": self.asked}

    def load_state_dict(self, state):
        self.advice, self.asked = list(state["advice"]), state["asked"]


@coevo.hookimpl
def register_tasks(tasks):
    tasks.register("chat", ChatTask)
    tasks.register("advised", AdvisedTask)
    tasks.register("talk", fakes.LettersTask)


@coevo.hookimpl
def register_context_updaters(updaters):
    updaters.register("advice", AdviceUpdater)
