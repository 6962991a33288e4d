"""Encode the missions of MiniGrid and BabyAI, short English texts, as vectors of zeros and ones.

The vocabulary is fixed: a word has the same place in every environment, so that a trained network can continue in
another one. It has all words of minigrid 3.2's missions, fixed sentences and BabyAI's language:

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

from duetto.environments import suggestions
from duetto.errors import UsageError

# A phrase starts with one of these words. It has one thing, so the order of its words does not matter.
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

PHRASES = 8  # BabyAI's maximum: four times "put this / next to that"

_POSITIONS = {word: position for position, word in enumerate(VOCABULARY)}


def encoder(kind: str) -> Encoder:
    """Return the function that encodes missions: `bag`, `ordered` or, for "off", to an empty vector."""
    return {"bag": bag, "ordered": ordered, "off": lambda mission: np.zeros(0, np.uint8)}[kind]


@lru_cache(maxsize=256)  # called at every step
def bag(mission: str) -> np.ndarray:
    """Encode a mission as (len(VOCABULARY),) uint8, read-only: 1 for each word that occurs.

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
        if word in CONNECTIVES and not set(phrases[-1]) <= set(CONNECTIVES):  # "and then" starts one phrase
            phrases.append([])
        phrases[-1].append(word)
    if len(phrases) > PHRASES:
        raise UsageError(
            f'The mission "{mission}" has {len(phrases)} phrases, more than {PHRASES}. Use mission="bag" or "off".'
        )
    bags = [_bag(words, mission) for words in phrases + [[]] * (PHRASES - len(phrases))]
    return _read_only(np.concatenate(bags))


def _read_only(code: np.ndarray) -> np.ndarray:
    code.flags.writeable = False  # all callers get the cache's array
    return code


def _words(mission: str) -> list[str]:
    return re.findall(r"[^\s,.]+", mission.lower())


def _bag(words: list[str], mission: str) -> np.ndarray:
    code = np.zeros(len(VOCABULARY), np.uint8)
    for word in words:
        if word not in _POSITIONS:
            raise UsageError(
                f'The mission "{mission}" has the word "{word}", which is in no mission of minigrid 3.2.'
                f"{suggestions.nearest(word, VOCABULARY)} Use words of the vocabulary, or leave missions out: "
                'mission="off".'
            )
        code[_POSITIONS[word]] = 1
    return code
