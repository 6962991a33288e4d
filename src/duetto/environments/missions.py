"""MiniGrid's and BabyAI's missions, short English texts, as vectors of zeros and ones.

The vocabulary is fixed: the same word has the same place in every environment, so that a trained network can go on in
another one. It has every word of the missions in minigrid 3.2, which are fixed sentences of some environments, and
BabyAI's little language:

    mission    = sequence | sequence ", then" sequence | sequence "after you" sequence
    sequence   = action | action "and" action
    action     = ("go to" | "pick up" | "open") thing | "put" thing "next to" thing
    thing      = ("the" | "a") [colour] ("ball" | "box" | "door" | "key" | "object") [place]
    place      = "on your left" | "on your right" | "in front of you" | "behind you"
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from duetto.environments import naming
from duetto.errors import UsageError

# With one of these words a phrase begins. Within a phrase there is one thing, so that its words may come in any order.
CONNECTIVES = ("after", "and", "from", "near", "next", "then")
VOCABULARY = (
    *("a", "the"),
    *("blue", "green", "grey", "purple", "red", "yellow"),
    *("ball", "box", "door", "key", "object"),
    *("end", "goal", "hallway", "lava", "maze", "opening", "room", "rooms", "square"),
    *("avoid", "fetch", "find", "get", "go", "open", "pick", "put", "reach", "traverse", "unlock", "up", "use"),
    *("at", "behind", "front", "in", "left", "matching", "must", "of", "on", "right", "to", "you", "your"),
    *CONNECTIVES,
)

Encoder = Callable[[str], np.ndarray]

PHRASES = 8  # the most that BabyAI makes: four times "put this / next to that"

_POSITIONS = {word: position for position, word in enumerate(VOCABULARY)}


def encoder(kind: str) -> Encoder:
    """Return the function from a mission to its vector: `bag`, `ordered`, or, for "off", one to an empty vector."""
    return {"bag": bag, "ordered": ordered, "off": lambda mission: np.zeros(0, np.uint8)}[kind]


@lru_cache(maxsize=256)  # a mission is asked for at every step
def bag(mission: str) -> np.ndarray:
    """Encode a mission as (len(VOCABULARY),) uint8, read-only: 1 for every word that occurs.

    Raises:
        UsageError: A word is not in the vocabulary.
    """
    return _read_only(_bag(_words(mission), mission))


@lru_cache(maxsize=256)
def ordered(mission: str) -> np.ndarray:
    """Encode a mission as (PHRASES * len(VOCABULARY),) uint8, read-only: a bag for each phrase in turn, then zeros.

        put the red ball on your left | next to a box | and open a door | after you go to the green key

    Raises:
        UsageError: A word is not in the vocabulary, or there are more than `PHRASES` phrases.
    """
    phrases: list[list[str]] = [[]]
    for word in _words(mission):
        if word in CONNECTIVES and not set(phrases[-1]) <= set(CONNECTIVES):  # "and then" begins one phrase, not two
            phrases.append([])
        phrases[-1].append(word)
    if len(phrases) > PHRASES:
        raise UsageError(
            f'The mission "{mission}" has {len(phrases)} phrases, more than {PHRASES}. Use mission="bag" or "off".'
        )
    bags = [_bag(words, mission) for words in phrases + [[]] * (PHRASES - len(phrases))]
    return _read_only(np.concatenate(bags))


def _read_only(code: np.ndarray) -> np.ndarray:
    code.flags.writeable = False  # the cache gives the same array to everyone
    return code


def _words(mission: str) -> list[str]:
    return re.findall(r"[^\s,.]+", mission.lower())


def _bag(words: list[str], mission: str) -> np.ndarray:
    code = np.zeros(len(VOCABULARY), np.uint8)
    for word in words:
        if word not in _POSITIONS:
            raise UsageError(
                f'The mission "{mission}" has the word "{word}", which is in no mission of minigrid 3.2.'
                f'{naming.nearest(word, VOCABULARY)} Use the vocabulary\'s words, or leave missions out: mission="off".'
            )
        code[_POSITIONS[word]] = 1
    return code
