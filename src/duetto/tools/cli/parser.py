"""Parse options with argparse: option groups, a short and a full help, one-line errors.

The result has only the options on the command line. Presets, a config or a function's defaults set other options.
"""

from __future__ import annotations

import re
import shutil
import types
from argparse import (
    SUPPRESS,
    Action,
    ArgumentParser,
    ArgumentTypeError,
    BooleanOptionalAction,
    RawDescriptionHelpFormatter,
)
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from inspect import Parameter, getdoc, signature
from typing import Annotated, Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

from typing_extensions import override

from duetto.algorithms.suggestions import FOREIGN_NAMES, did_you_mean, nearest
from duetto.errors import UsageError
from duetto.tools.cli.output import wrapped

_NEGATIVE = re.compile(r"-(\d|\.\d|inf\b)")
WIDEST = 120  # columns of the help
HELP = {"help": "Show this help.", "help_all": "Show this help with all options."}


@dataclass(frozen=True)
class Arg:
    """An option's help and form, as metadata in the `Annotated` of its type.

    Attributes:
        help: The help text.
        metavar: The name of the option's value in the help; "" derives this name from the type.
        is_positional: Whether it is a positional argument, without an option name.
        is_flag: Whether a boolean option has no --no-NAME.
        if_empty: The value of an option that is given without a value; None if the option needs a value.
    """

    help: str = ""
    metavar: str = ""
    is_positional: bool = False
    is_flag: bool = False
    if_empty: str | None = None


Flag = Annotated[bool, Arg(is_flag=True)]
Texts = tuple[str, ...]  # one or more values of an option that may be repeated


@dataclass(frozen=True)
class OptionGroup:
    """Options under one title of the help.

    Attributes:
        title: The title; "" for the options next to --help.
        options: The annotation of each option, by name, usually with an `Arg`.
        defaults: Default values, for the help. An option without a default is required.
        rare: The options that only --help-all shows.
    """

    title: str
    options: Mapping[str, Any]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    rare: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Parser:
    """The options of one command.

    Attributes:
        prog: The command, such as "duetto train td3".
        groups: The command's options, in the groups of the help.
    """

    prog: str
    groups: Sequence[OptionGroup]

    def parse(self, arguments: Sequence[str]) -> dict[str, Any]:
        """Return the options that are on the command line, by name.

        Raises:
            UsageError: An option is unknown, or a value is missing or wrong.
        """
        words = [re.sub(r"^--[\w-]+", lambda name: name[0].replace("_", "-"), word) for word in arguments]
        words = [f" {word}" if _NEGATIVE.match(word) else word for word in words]  # argparse reads -1e9 as an option
        values, unknown = self.program().parse_known_intermixed_args(words)
        if unknown:
            raise UsageError(self._refused(next((word for word in unknown if word.startswith("-")), unknown[0])))
        return {name: _joined(value) if isinstance(value, list) else value for name, value in vars(values).items()}

    def check_complete(self, given: Mapping[str, Any]) -> None:
        """Raise UsageError if a required value is missing."""
        for name, words in self._required().items():
            if name not in given:
                raise UsageError(f"{self.prog} needs {words.removesuffix(' ...')}. See {self.prog} --help.")

    def print_help(self, about: str, everything: bool = False) -> None:
        """Print the help, with rare options only if `everything` is true."""
        program = self.program(everything)
        program.description = "\n\n".join(wrapped(" ".join(text.split())) for text in about.split("\n\n"))
        program.print_help()

    def program(self, everything: bool = True) -> ArgumentParser:
        """Return the parser for argparse. Its help has rare options only if `everything` is true."""
        usage = wrapped(" ".join(["usage:", self.prog, *self._required().values(), "[options]"]))
        usage = usage.removeprefix("usage: ").replace("%", "%%")
        program = _Program(self.prog, usage, formatter_class=_Help, add_help=False, allow_abbrev=False)
        program.add_argument("-h", "--help", action="store_true", default=SUPPRESS, help=HELP["help"])
        rare = any(group.rare & group.options.keys() for group in self.groups)
        program.add_argument(
            "--help-all", action="store_true", default=SUPPRESS, help=HELP["help_all"] if rare else SUPPRESS
        )
        for group in self.groups:
            section = program.add_argument_group(group.title) if group.title else program
            for name, annotation in group.options.items():
                is_hidden = not everything and name in group.rare
                _add(section, name, annotation, name not in group.defaults, group.defaults.get(name), is_hidden)
        return program

    def _required(self) -> dict[str, str]:
        """Return the usage line's text for each required option, by the option's name."""
        required: dict[str, str] = {}
        for group in self.groups:
            for name in (name for name in group.options if name not in group.defaults):
                _, arg = taken_apart(group.options[name])
                required[name] = f"{'' if arg.is_positional else _option(name)} {arg.metavar or name}".strip()
        return required

    def _refused(self, word: str) -> str:
        """Return the error message for an unknown option or a superfluous value."""
        option = word.partition("=")[0]
        if not option.startswith("-"):
            return f"{self.prog} takes no {word!r} here. Put a value directly after its option. See {self.prog} --help."
        name = option.lstrip("-").replace("-", "_")
        known = [name for group in self.groups for name in group.options]
        similar = nearest(name, known) or nearest(name.removeprefix("no_"), known)
        if similar:
            names = " or ".join(map(_option, similar))
            hint = f"Did you mean {names}?"
        else:
            hint = "It has no similar option." if name in FOREIGN_NAMES else f"See {self.prog} --help."
        return f"{self.prog} has no option {option}. {hint}"


def function_parser(function: Callable[..., None], prog: str) -> Parser:
    """Return a parser whose options are a function's annotated parameters."""
    hints = get_type_hints(function, include_extras=True)
    defaults = {name: entry.default for name, entry in signature(function).parameters.items()}
    options = {name: hints[name] for name in defaults}
    group = OptionGroup("", options, {name: value for name, value in defaults.items() if value is not Parameter.empty})
    return Parser(prog, [group])


def run_function(function: Callable[..., None], prog: str, arguments: Sequence[str]) -> None:
    """Call a function with the options on the command line. Its docstring is the help."""
    parser = function_parser(function, prog)
    given = parser.parse(arguments)
    if HELP.keys() & given.keys():
        parser.print_help(getdoc(function) or "")
        return
    parser.check_complete(given)
    function(**given)


def unknown(kind: str, name: str, known: Collection[str]) -> UsageError:
    """Return an error that suggests a similar known name, or lists all of them."""
    return UsageError(f"There is no {kind} {name!r}.{did_you_mean(name.lower(), known, 'There are')}")


def taken_apart(annotation: Any) -> tuple[Any, Arg]:
    """Return an annotation's type without `| None`, and one `Arg` merged from its `Arg`s. The last has priority."""
    arg = Arg()
    while get_origin(annotation) in (Annotated, Union, types.UnionType):
        annotation, *metadata = (part for part in get_args(annotation) if part is not type(None))
        for entry in (entry for entry in metadata if isinstance(entry, Arg)):
            arg = replace(arg, **{name: value for name, value in vars(entry).items() if value not in ("", False, None)})
    return annotation, arg


def _joined(parts: list[Any]) -> tuple[Any, ...]:
    return tuple(value for part in parts for value in (part if isinstance(part, list) else [part]))


def _option(name: str) -> str:
    return f"--{name.rstrip('_').replace('_', '-')}"


def _add(section: Any, name: str, annotation: Any, is_required: bool, default: Any, is_hidden: bool) -> None:
    """Add an option to an argparse group."""
    kind, arg = taken_apart(annotation)
    shown = " ".join(map(str, default)) if isinstance(default, tuple) else str(default)
    is_off = default is None or default is False or default in ("", ())
    hint = " (required)" if is_required and not arg.is_positional else "" if is_off else f" (default: {shown})"
    form: dict[str, Any] = {
        "default": SUPPRESS,
        "help": SUPPRESS if is_hidden else (arg.help + hint).replace("%", "%%"),
    }
    if kind is bool:
        form["action"] = "store_true" if arg.is_flag else BooleanOptionalAction
    else:
        form["type"], metavar, form["nargs"] = _values(kind, arg)
        form["metavar"] = arg.metavar or metavar
        if arg.if_empty is not None:
            form |= {"nargs": "?", "const": arg.if_empty}
        if kind == Texts and not arg.is_positional:
            form["action"] = "extend"
    if arg.is_positional:
        section.add_argument(name, **form | {"nargs": "*" if kind == Texts else "?"})
    else:
        section.add_argument(_option(name), dest=name, **form)


def _values(kind: Any, arg: Arg) -> tuple[Callable[[str], Any], str, Any]:
    """Return, for an option's type: a parser of one value, the metavar, and argparse's `nargs`."""
    if get_origin(kind) is Literal:
        choices = [str(choice) for choice in get_args(kind)]

        def choice(text: str) -> str:
            if text not in choices and text is not SUPPRESS:  # the value of an omitted positional argument
                raise ArgumentTypeError(f"is {text!r}; it must be {' or '.join(choices)}.")
            return text

        return choice, f"{{{','.join(choices)}}}", None
    if get_origin(kind) is tuple:
        part, *others = get_args(kind)
        read, metavar, _ = _values(part, arg)
        if part is int:  # a list may be written 64 32, 64,32 or [64, 32]
            read = _whole_numbers
        return read, f"{metavar} ...", 1 + len(others) if Ellipsis not in others else "*" if part is int else "+"
    return {int: (_whole, "N", None), float: (_number, "X", None)}.get(kind, (str, "TEXT", None))


def _whole(text: str) -> int:
    """Parse a whole number, which may be written as 1e6."""
    try:
        if (number := float(text)).is_integer():
            return int(text) if text.strip("+-").isdecimal() else int(number)
    except (ValueError, OverflowError):
        pass
    raise ArgumentTypeError(f"is {text!r}; it must be a whole number.")


def _whole_numbers(text: str) -> list[int]:
    return [_whole(word) for word in re.findall(r"[^\s,()[\]]+", text)]


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ArgumentTypeError(f"is {text!r}; it must be a number.") from None


class _Program(ArgumentParser):
    """argparse's parser, except that an error raises a UsageError of one line."""

    @override
    def error(self, message: str) -> NoReturn:
        """Raise UsageError. Instead of "expected one argument", name the values that the option takes."""
        names, _, words = message.removeprefix("argument ").partition(": ")
        option = names.partition("/")[0]
        if words.startswith("expected"):
            metavar = re.sub(r"^{|}$| \.\.\.$", "", str(self._option_string_actions[option].metavar))
            named = {"N": "a whole number", "X": "a number"}
            words = f"needs a value: {named.get(metavar, metavar.replace(',', ' or '))}."
        raise UsageError(f"{option} {words}" if words else message)


class _Help(RawDescriptionHelpFormatter):
    """argparse's help, without broken words, and with one metavar for several values."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30, width=min(shutil.get_terminal_size().columns, WIDEST) - 1)

    @override
    def _split_lines(self, text: str, width: int) -> list[str]:
        return wrapped(text, width=width).split("\n")

    @override
    def _format_args(self, action: Action, default_metavar: str) -> str:
        return str(action.metavar or "")
