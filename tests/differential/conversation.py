"""Conversations made from a seed: what clients may say, well formed and not, in a random order.

Each publish has a payload of its own, so that the copies of one message can be told from those of
the next. A conversation is a list of steps of the script language, one connection at a time, with
barriers between; queue groups have one member, because their choice is random.
"""

from __future__ import annotations

import json
import random

from .script import Script, Step

CONFIGS = [
    "",
    "max_subs: 5\nmax_payload: 64\nmax_control_line: 120\nmax_sub_tokens: 4\n",
    """authorization { users: [
  {user: u, password: p, permissions: {
    publish: {allow: ["a.>", "*.b", "x"], deny: ["a.b.*", "c.b"]}
    subscribe: {allow: ["a.>", "b q1", "x", "*.b", "inbox.>", ">"], deny: ["a.b.c", "x q2", "c.>"]}
    allow_responses: {max: -1, expires: "1m"}
  }}
] }
""",
    "no_header_support: true\n",
]
WORDS = ["a", "b", "c", "x", "inbox", "$SYS", "a*", "ä"]
MALFORMED = ["", "a.", ".a", "a..b", ".", "a.>.b", ">.a"]
SIDS = ["1", "2", "3", "4", "sid-x", "77"]
NAMES = ["a", "b", "c"]
TURNS = 14
ACTIONS_PER_TURN = 6


class Writer:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.published = 0
        self.queue = 0

    def subject(self, wild: bool) -> str:
        if self.random.random() < 0.06:
            return self.random.choice(MALFORMED)
        tokens = [self.random.choice(WORDS) for _ in range(self.random.choice([1, 1, 2, 2, 3, 5]))]
        if wild or self.random.random() < 0.03:
            if self.random.random() < 0.4:
                tokens[self.random.randrange(len(tokens))] = "*"
            if self.random.random() < 0.25:
                tokens[-1] = ">"
        return ".".join(tokens)

    def subscribe(self) -> str:
        queue = ""
        if self.random.random() < 0.2:
            # No group has a second member; the names of the permissions are used rarely.
            self.queue += 1
            queue = f" g{self.queue}"
        return f"SUB {self.subject(wild=True)}{queue} {self.random.choice(SIDS)}"

    def unsubscribe(self) -> str:
        limit = self.random.choice(["", "", " 1", " 2", " 5", " 0", " x"])
        return f"UNSUB {self.random.choice(SIDS)}{limit}"

    def payload(self) -> str:
        self.published += 1
        return f"{self.published:05d}" + "." * self.random.choice([0, 0, 0, 3, 50, 70, 3000])

    def reply(self) -> str:
        return self.random.choice(["", "", "", " inbox.1", " a.b", " _R_.x", " nobody", " x"])

    def publish(self) -> str:
        payload = self.payload()
        return f"PUB {self.subject(wild=False)}{self.reply()} {len(payload)}\\r\\n{payload}"

    def publish_headers(self) -> str:
        head = (
            "NATS/1.0\\r\\n"
            + self.random.choice(["", "K: v\\r\\n", "a:b\\r\\nA: c\\r\\n"])
            + "\\r\\n"
        )
        size = len(head.replace("\\r", "r").replace("\\n", "n"))
        payload = self.payload()
        line = f"HPUB {self.subject(wild=False)}{self.reply()} {size} {size + len(payload)}"
        return f"{line}\\r\\n{head}{payload}"

    def odd_form(self, text: str) -> str:
        """Blanks, tabs and small letters where they may be."""
        line, end, rest = text.partition("\\r\\n")
        verb, blank, arguments = line.partition(" ")
        if self.random.random() < 0.1:
            verb = verb.lower()
        if self.random.random() < 0.1:
            blank = " \\t "
        if self.random.random() < 0.05:
            arguments += " "
        return verb + blank + arguments + end + rest

    def action(self) -> str:
        kind = self.random.choices(
            [self.subscribe, self.unsubscribe, self.publish, self.publish_headers],
            [30, 12, 45, 13],
        )[0]
        return self.odd_form(kind())

    def greeting(self, config: str, pedantic: bool) -> str:
        options: dict[str, bool | str] = {
            "verbose": self.random.random() < 0.3,
            "pedantic": pedantic,
            "echo": self.random.random() < 0.7,
            "headers": "no_header" not in config,
            "no_responders": "no_header" not in config and self.random.random() < 0.6,
        }
        if "user:" in config:
            options |= {"user": "u", "pass": "p"}
        return json.dumps(options)


def conversation(seed: int) -> Script:
    writer = Writer(seed)
    config = CONFIGS[seed % len(CONFIGS)]
    script = Script(f"conversation-{seed}", config=config)
    pedantic = writer.random.random() < 0.3
    for name in NAMES:
        script.steps.append(Step(0, name, "client", writer.greeting(config, pedantic)))
        script.steps.append(Step(0, name, "sync"))
    for turn in range(1, TURNS + 1):
        name = writer.random.choice(NAMES)
        text = "\\r\\n".join(writer.action() for _ in range(ACTIONS_PER_TURN)) + "\\r\\n"
        pieces = writer.random.choice([0, 0, 1, 7, 40])
        verb, size = ("pieces", f"{pieces} ") if pieces else ("raw", "")
        script.steps.append(Step(turn, name, verb, size + text))
        script.steps.append(Step(turn, name, "settle"))
    return script


def sizes_around(boundary: int) -> Script:
    """Publishes that end within a few bytes of the size that a buffer may have."""
    script = Script(f"sizes-{boundary}")
    for name in ("a", "b"):
        script.steps.append(Step(0, name, "client"))
        script.steps.append(Step(0, name, "raw", "SUB size.* 1\\r\\n"))
        script.steps.append(Step(0, name, "sync"))
    for around in range(-26, 4):
        size = boundary + around
        line = f"PUB size.{around} {size}\\r\\n"
        script.steps.append(Step(around, "a", "raw", f"{line}${{x*{size}}}\\r\\n"))
        if around % 3 == 0:
            script.steps.append(Step(around, "a", "sync"))
    script.steps.append(Step(0, "b", "sync"))
    return script
