"""Parse a command's options with tyro: named groups, readable metavars, errors of one line.

Only options that are on the command line are returned; presets and recorded runs give the others their values.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from inspect import Parameter, getdoc, signature
from io import StringIO
from itertools import dropwhile, takewhile
from types import ModuleType
from typing import Annotated, Any, Literal, NamedTuple, Required, TypedDict, Union, get_args, get_origin, get_type_hints

import tyro
from tyro.conf import (
    AvoidSubcommands,
    FlagConversionOff,
    OmitArgPrefixes,
    OmitSubcommandPrefixes,
    Positional,
    UseAppendAction,
    arg,
    subcommand,
)
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from duetto.algorithms.suggestions import FOREIGN_NAMES, nearest, units
from duetto.errors import UsageError
from duetto.tools.cli.output import wrapped

WIDEST = 120  # columns of the help
Flag = FlagConversionOff[bool]  # --name, without --no-name
Texts = tuple[str, ...]  # one or more values of an option that may be repeated

_DICT: Any = TypedDict  # made here from values, which type checkers do not follow
_ANNOTATED: Any = Annotated
_FLAG, _POSITIONAL = get_args(Flag)[1], get_args(Positional[str])[1]  # tyro's markers
_HELP = {"help": Annotated[Flag, arg(aliases=["-h"], help="Show this help.")]}
_HELP_ALL = {"help_all": Annotated[Flag, arg(help="Show this help with the options that are seldom changed.")]}
_COMMA = "\ue000"  # in the place of commas within a word, at which tyro would break it
_ABOUT = "ABOUT"  # the place of a command's description in tyro's page, which would join its lines


@dataclass(frozen=True)
class OptionGroup:
    """Options under one title of the help.

    Attributes:
        title: The title; "" for the options that stand next to --help.
        options: The annotation of each option, by name; `tyro.conf.arg` in it has its help and its metavar.
        defaults: Default values, for the help. An option without one is required.
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
        groups: Its options.
        refusal: Return the error for an option that the command lacks, or "" for the usual one.
    """

    prog: str
    groups: Sequence[OptionGroup]
    refusal: Callable[[str], str] = lambda name: ""

    def parse(self, arguments: Sequence[str]) -> dict[str, Any]:
        """Return the options that are on the command line, by name.

        Raises:
            UsageError: An option is unknown, or a value is missing or wrong.
        """
        groups = self.with_help()
        with _errors_of_one_line(self._annotations()):
            values, unknown = tyro.cli(
                _typed_dict(groups),
                args=list(arguments),
                prog=self.prog,
                default=_without_values(groups),
                return_unknown_args=True,
                add_help=False,
                registry=_REGISTRY,
            )
        if unknown:
            raise UsageError(self._refused(unknown[0].partition("=")[0]))
        given: dict[str, Any] = {}
        for group in groups:
            of_group = values[group.title] if group.title else values
            for name in (name for name in group.options if name in of_group):
                value = of_group[name]
                if not _Kind.of(group.options[name]).is_repeated:
                    given[name] = value
                elif value:
                    given[name] = tuple(text for texts in value for text in texts)
        return given

    def check_complete(self, given: Mapping[str, Any]) -> None:
        """Raise UsageError if a required value is missing."""
        for group in self.groups:
            for name, annotation in group.options.items():
                if name not in {*given, *group.defaults}:
                    kind = _Kind.of(annotation)
                    option = f"--{name.replace('_', '-')} {kind.metavar or ''}".strip()
                    needed = (kind.metavar or name).removesuffix(" ...") if kind.is_positional else option
                    raise UsageError(f"{self.prog} needs {needed}. See {self.prog} --help.")

    def print_help(self, about: str, everything: bool = False) -> None:
        """Print the help; options that are seldom changed only with `everything`."""
        extra = [OptionGroup("", _HELP_ALL, {"help_all": False})] if any(group.rare for group in self.groups) else []
        page = _Page(sys.stdout)
        with _one_column(), redirect_stdout(page), suppress(SystemExit):
            tyro.cli(
                _typed_dict([*extra, *self.groups], for_help=True, everything=everything),
                args=["--help"],
                prog=self.prog,
                description=_ABOUT,
                default=_without_values([*extra, *self.groups]),
                registry=_REGISTRY,
            )
        paragraphs = [wrapped(" ".join(text.split())) for text in about.split("\n\n")]
        usage, _, rest = page.getvalue().partition("\n")
        print(wrapped(usage))
        print(rest.replace(_ABOUT, "\n\n".join(paragraphs)).replace(_COMMA, ","), end="")

    def with_help(self) -> list[OptionGroup]:
        """Return the groups, and the options that print the help."""
        return [OptionGroup("", _HELP | _HELP_ALL), *self.groups]

    def _annotations(self) -> dict[str, Any]:
        return {name: annotation for group in self.groups for name, annotation in group.options.items()}

    def _refused(self, option: str) -> str:
        """Return the error for an option that the command lacks, or for a value too many."""
        if not option.startswith("-"):
            return f"{self.prog} takes no {option!r} here. Put options' values after their names: {self.prog} --help"
        name = option.lstrip("-").replace("-", "_")
        if sentence := self.refusal(name):
            return sentence
        known = list(self._annotations())
        similar = nearest(name, known) or nearest(name.removeprefix("no_"), known)
        if similar:
            names = " or ".join(f"--{each.replace('_', '-')}" for each in similar)
            hint = f"Did you mean {names}{units(name)}?"
        else:
            hint = "It has nothing of the kind." if name in FOREIGN_NAMES else f"See {self.prog} --help."
        return f"{self.prog} has no option {option}. {hint}"


def function_parser(function: Callable[..., None], prog: str, refusal: Callable[[str], str] | None = None) -> Parser:
    """Return the parser of a function's parameters; annotations have their help, and defaults are the function's."""
    hints = get_type_hints(function, include_extras=True)
    defaults = {name: entry.default for name, entry in signature(function).parameters.items()}
    options = {name: hints[name] for name in defaults}
    group = OptionGroup("", options, {name: value for name, value in defaults.items() if value is not Parameter.empty})
    return Parser(prog, [group], refusal or (lambda name: ""))


def run_function(
    function: Callable[..., None], prog: str, arguments: Sequence[str], refusal: Callable[[str], str] | None = None
) -> None:
    """Call a function with the options on the command line. See `function_parser`; its docstring is the help."""
    parser = function_parser(function, prog, refusal)
    given = parser.parse(arguments)
    if {"help", "help_all"} & given.keys():
        parser.print_help(getdoc(function) or "")
        return
    parser.check_complete(given)
    function(**given)


def print_completion(arguments: Sequence[str], commands: Mapping[str, ModuleType]) -> None:
    """Print or write tyro's completion script for all commands, as `arguments` say.

    A module's function `parsers` returns the parsers of its subcommands by name; other modules have the function of
    their command's name.
    """
    types = {
        name: _command_type(module.parsers())
        if hasattr(module, "parsers")
        else _typed_dict(function_parser(getattr(module, name), "").with_help())
        for name, module in commands.items()
    }
    config = (AvoidSubcommands, OmitArgPrefixes, OmitSubcommandPrefixes)
    tyro.extras.subcommand_cli_from_dict(types, prog="duetto", args=arguments, config=config, registry=_REGISTRY)


def _command_type(parsers: Mapping[str, Parser]) -> Any:
    """Return a function for tyro that takes one of several subcommands."""
    each = [
        Annotated[Any, subcommand(name, constructor=_typed_dict(parser.with_help()))]
        for name, parser in parsers.items()
    ]

    def command(part: Any) -> None: ...

    command.__annotations__["part"] = Union[tuple(each)]  # noqa: UP007, of a tuple
    return command


class _Page(StringIO):
    """Text for a stream, with its encoding and its colors."""

    def __init__(self, stream: Any) -> None:
        super().__init__()
        self._stream = stream

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stream.encoding

    def isatty(self) -> bool:
        return self._stream.isatty()


@contextmanager
def _one_column() -> Iterator[None]:
    """Limit the width that tyro sees, with which it would put groups side by side, out of their order."""
    columns = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(min(shutil.get_terminal_size().columns, WIDEST))
    try:
        yield
    finally:
        os.environ.pop("COLUMNS") if columns is None else os.environ.update(COLUMNS=columns)


# ---------------------------------------------------------------------------------------------------- annotations
class _Kind(NamedTuple):
    """An option's annotation, taken apart."""

    type: Any  # without `| None`: an option that is not given has no value
    metadata: tuple[Any, ...]
    is_flag: bool
    is_positional: bool
    is_repeated: bool
    metavar: str | None
    help: str

    @classmethod
    def of(cls, annotation: Any) -> _Kind:
        metadata: tuple[Any, ...] = ()
        while get_origin(annotation) in (Annotated, Union, types.UnionType):
            parts = get_args(annotation)
            if get_origin(annotation) is Annotated:
                annotation, metadata = parts[0], (*parts[1:], *metadata)
            else:
                (annotation,) = (part for part in parts if part is not type(None))
        is_flag, is_positional = _FLAG in metadata, _POSITIONAL in metadata
        is_repeated = annotation == Texts and not is_positional
        shown = {name: [getattr(entry, name, None) for entry in metadata] for name in ("metavar", "help")}
        metavar, text = (next((value for value in reversed(shown[name]) if value), None) for name in shown)
        return cls(annotation, metadata, is_flag, is_positional, is_repeated, metavar, text or "")

    def described(self, default: Any, is_required: bool) -> Any:
        """Return the annotation for tyro, with the default in its help."""
        kind: Any = UseAppendAction[tuple[Texts, ...]] if self.is_repeated else self.type
        parts = [_ANNOTATED[bool, _SWITCH] if self.is_flag else kind, *self.metadata]
        hint = "(required)" if is_required else _default_text(default)
        text = re.sub(r"(?<=\S),(?=\S)", _COMMA, self.help)
        described: Any = _ANNOTATED[(*parts, arg(help=text, help_behavior_hint=hint))]
        return Required[described] if is_required else described


def _default_text(value: Any) -> str:
    """Return " (default: 0.99)", or "" for an option that is off or left to Duetto."""
    if value is None or value is False or value in ("", ()):
        return ""
    return f"(default: {' '.join(map(str, value)) if isinstance(value, tuple) else value})"


def _typed_dict(groups: Sequence[OptionGroup], for_help: bool = False, everything: bool = True) -> Any:
    """Return a TypedDict whose keys are the options of the group "" and the other groups' titles.

    An option is required only `for_help`: --help itself needs none.
    """
    entries: dict[str, Any] = {}
    for group in groups:
        options: dict[str, Any] = {}
        for name, annotation in group.options.items():
            if everything or name not in group.rare:
                is_required = for_help and name not in group.defaults
                options[name] = _Kind.of(annotation).described(group.defaults.get(name), is_required)
        if group.title:
            nested: Any = _DICT(group.title, options, total=False)
            entries[group.title] = OmitArgPrefixes[_ANNOTATED[nested, arg(name=group.title, help="")]]
        else:
            entries |= options
    return _DICT("Options", entries, total=False)


def _without_values(groups: Sequence[OptionGroup]) -> dict[str, Any]:
    """Return the empty values that tyro needs for options that may be repeated."""
    values: dict[str, Any] = {}
    for group in groups:
        empty = {name: () for name, annotation in group.options.items() if _Kind.of(annotation).is_repeated}
        values |= {group.title: empty} if group.title else empty
    return values


# ---------------------------------------------------------------------------------------------------- values
_REGISTRY = ConstructorRegistry()


def _spec(nargs: Any, metavar: str, read: Callable[[list[str]], Any]) -> PrimitiveConstructorSpec[Any]:
    return PrimitiveConstructorSpec(nargs, metavar, read, lambda value: True, lambda value: [str(value)])


_SWITCH = _spec(0, "", lambda texts: True)


def optional_value(metavar: str, absent: str) -> PrimitiveConstructorSpec[Any]:
    """Return a spec for the annotation of an option whose value may be left out; it is `absent` then."""

    def read(texts: list[str]) -> str:
        if len(texts) > 1:
            raise ValueError(f"takes at most one value, not {' '.join(texts)}. Put ENVIRONMENT before the options.")
        return texts[0] if texts else absent

    return _spec("*", metavar, read)


@_REGISTRY.primitive_rule
def _numbers(kind: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """Whole numbers, also as 1e6; other numbers; and lists of whole numbers: 64 32, or 64,32."""
    if kind.type is int:
        return _spec(1, "N", lambda texts: _whole(texts[0]))
    if kind.type is float:
        return _spec(1, "X", lambda texts: _number(texts[0]))
    if kind.type == tuple[int, ...]:
        return _spec("*", "N ...", lambda texts: tuple(map(_whole, re.findall(r"[^\s,()[\]]+", " ".join(texts)))))
    return None


@_REGISTRY.primitive_rule
def _texts(kind: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    return _spec(1, "TEXT", lambda texts: texts[0]) if kind.type is str else None


def _whole(text: str) -> int:
    with suppress(ValueError):
        return int(text)
    with suppress(ValueError):
        if (number := _number(text)).is_integer():
            return int(number)
    raise ValueError(f"is {text!r}; it must be a whole number.")


def _number(text: str) -> float:
    with suppress(ValueError):
        return float(text)
    raise ValueError(f"is {text!r}; it must be a number.")


# ---------------------------------------------------------------------------------------------------- errors
@contextmanager
def _errors_of_one_line(options: Mapping[str, Any]) -> Iterator[None]:
    """Raise tyro's errors, which it prints in a box, as UsageError."""
    printed = StringIO()
    try:
        with redirect_stderr(printed):
            yield
    except SystemExit as ended:
        if not ended.code:
            raise
        raise UsageError(_sentence(_first_paragraph(printed.getvalue()), options)) from None


def _first_paragraph(box: str) -> str:
    """Return the first paragraph of tyro's box, whose frame is drawn with lines or, without UTF-8, with hyphens."""
    lines = [re.sub(r"\x1b\[[\d;]*m", "", line).strip(" │|") for line in box.splitlines()[1:]]
    is_rule = re.compile("[─-]{3}|╰|$")
    return " ".join(takewhile(lambda line: not is_rule.match(line), dropwhile(is_rule.match, lines)))


def _sentence(message: str, options: Mapping[str, Any]) -> str:
    """Return a message of tyro's in Duetto's words."""
    if found := re.match(r"Missing value for argument '(--[\w-]+)", message):
        return f"{found[1]} needs a value: {_values_of(found[1], options)}."
    if found := re.match(r"[Ii]nvalid choice ('.*?') for argument '(.*?)'\. Expected one of \((.*)\)", message):
        choices = " or ".join(re.findall(r"'([^']+)'", found[3]))
        return f"{found[2]} is {found[1]}; it must be {choices}."
    if found := re.match(r"Error parsing (--[\w-]+)\S*: (.*)", message):
        return f"{found[1]} {found[2]}"
    return message


def _values_of(option: str, options: Mapping[str, Any]) -> str:
    name = option.removeprefix("--").replace("-", "_")
    kind = _Kind.of(options[name]) if name in options else _Kind.of(str)
    if get_origin(kind.type) is Literal:
        return " or ".join(map(str, get_args(kind.type)))
    by_type = {int: "a whole number", float: "a number"}
    return kind.metavar or by_type.get(kind.type, "see --help")
