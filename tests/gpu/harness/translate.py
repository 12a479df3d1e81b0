"""LLVM IR for a GPU as LLVM IR for the host: the same instructions, with every access to memory announced.

Address spaces go away, shared memory becomes globals of the emulator, ``llvm.nvvm.*``
become calls of its C functions, and before every load, store and atomic stands a call of ``emu_access`` with
the size and alignment of that instruction, after every local array one of ``emu_local``. Each such place has
a number; ``Translated.sites`` says which line it was.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tests.gpu.harness.ir_text import closing, last_type, operand_at, split, type_at

DYNAMIC_ROOM = 232448
_GAP = 1024
#: Shared memory begins at an odd multiple of its own alignment, where that is less.
_MOST_ALIGNED = 128
_READ, _WRITE, _ATOMIC, _INVARIANT = 1, 2, 4, 8
_CONSTANT_KIND, _SHARED_KIND = 1, 4

_NAME = r'(?:"[^"]*"|[-\w.$]+)'
_GLOBAL = re.compile(rf"^(@{_NAME}) = (.*?)\b(global|constant) (.*)$")
_DEFINE = re.compile(rf"^define (.*?)(@{_NAME})\(")
_RESULT = re.compile(rf"^\s+(?:(%{_NAME}) = )?(.*)$")
_INTRINSIC = re.compile(r"@(llvm\.nvvm\.[\w.]+)\(")
_DECLARE = re.compile(r"^declare (.*) @(llvm\.nvvm\.[\w.]+)\((.*)\)")
_MEMORY = re.compile(r"call void @llvm\.(memcpy|memmove|memset)\S*\((.*)\)")
_LOCAL = re.compile(r"alloca (.*?)(?:, i(?:32|64) (\d+))?, align ")
_ALIGN = re.compile(r", align (\d+)")
_ARGUMENT_FACTS = re.compile(r"\b(?:noalias|readonly|readnone|writeonly|nocapture|captures\(none\))(?= )")
_CONTROL_KIND = re.compile(r"\b(?:ptx_kernel|ptx_device) ")
_TARGET_TEXT = re.compile(r'"target-(?:cpu|features)"="[^"]*"')
#: Assembly that a kernel may hold, and the C function that does the same.
_ASSEMBLY = {"cvt.rna.tf32.f32 $0, $1;": "emu_f2tf32_rna", "tanh.approx.f32 $0, $1;": "emu_tanh_approx_f32"}
_ASM = re.compile(r'call (\w+) asm (?:sideeffect )?"([^"]*)", "[^"]*"\((.*)\)')


@dataclass
class Translated:
    """Host IR, and the line of the kernel that each place in it was."""

    text: str = ""
    sites: list[str] = field(default_factory=list)


def translate(kernel_ir: str) -> Translated:
    return _Translation().module(kernel_ir)


class _Translation:
    def __init__(self) -> None:
        self.sites: list[str] = []
        self.heads: list[str] = []
        self.lines: list[str] = []
        self.globals: list[tuple[str, str, int, int]] = []
        self.static = self.dynamic = 0
        self.kernels: list[tuple[str, list[str]]] = []
        #: Pointers that come from a ``noalias readonly`` argument: NVPTX reads through them by ld.global.nc.
        self.invariant: set[str] = set()
        self.by_memory: set[str] = set()

    def module(self, text: str) -> Translated:
        lines = [_hosted(line) for line in text.splitlines()]
        for line in sorted(lines, key=lambda declaration: not declaration.startswith("declare ")):
            self.line(line)
        self.lines += [*self.heads, *self._tables(), *_RUNTIME.splitlines()]
        return Translated("\n".join(self.lines) + "\n", self.sites)

    def line(self, line: str) -> None:
        match = _GLOBAL.match(line)
        if line.startswith("declare "):
            self._declare(line)
        elif line.startswith("define "):
            self._define(line)
        elif match:
            self._global(line, match)
        elif line[:1] in (" ", "\t"):
            self._instruction(line)
        elif not line.startswith(("target ", "source_filename")):
            self.lines.append(line)

    def _site(self, line: str) -> int:
        self.sites.append(line.strip())
        return len(self.sites) - 1

    def _declare(self, line: str) -> None:
        match = _DECLARE.match(line)
        if match:
            result, name, arguments = match.groups()
            self._intrinsic(
                name, last_type(result), [argument[: type_at(argument)[0]] for argument in split(arguments)]
            )
        elif not re.search(r"@llvm\.mem(cpy|move|set)", line):
            self.lines.append(line)

    def _intrinsic(self, name: str, result: str, types: list[str]) -> None:
        """Scalars go as C passes them; vectors and structs go through memory, laid out as C lays them out."""
        symbol = _symbol(name)
        scalar = result[0] not in "{<[" and all(kind[0] not in "{<[" for kind in types)
        if scalar:
            self.heads.append(f"declare {result} @{symbol}({', '.join(['i32', *types])})")
            return
        packed = f"{{ {', '.join(types)} }}"
        body = [f"  %in = alloca {packed}, align 16", "  %out = alloca [64 x i8], align 16"]
        for i, argument_type in enumerate(types):
            body.append(f"  %p{i} = getelementptr {packed}, ptr %in, i32 0, i32 {i}")
            body.append(f"  store {argument_type} %a{i}, ptr %p{i}")
        body += [f"  call void @{symbol}(i32 %site, ptr %in, ptr %out)"]
        body += (
            ["  ret void"] if result == "void" else [f"  %r = load {result}, ptr %out", f"  ret {result} %r"]
        )
        arguments = ", ".join(["i32 %site", *(f"{kind} %a{i}" for i, kind in enumerate(types))])
        self.heads.append(f"declare void @{symbol}(i32, ptr, ptr)")
        self.heads += [f"define internal {result} @by_memory_{symbol}({arguments}) {{", *body, "}"]
        self.by_memory.add(symbol)

    def _global(self, line: str, match: re.Match[str]) -> None:
        name, linkage, kind, rest = match.groups()
        end, size, align = type_at(rest)
        if "SHARED" not in linkage:
            if kind != "constant":
                raise ValueError(f"a global that is neither shared nor constant: {line}")
            self.lines.append(line)
            self.globals.append((name, name, size, _CONSTANT_KIND))
            return
        stated = _ALIGN.search(rest)
        offset = int(stated[1] if stated else align) % _MOST_ALIGNED
        if size == 0:
            self.dynamic = max(self.dynamic, offset)
            self.lines.append(f"{name} = internal alias {rest[:end]}, ptr @emu_dynamic")
        else:
            self.static = -(-self.static // _MOST_ALIGNED) * _MOST_ALIGNED + offset
            place = f"getelementptr (i8, ptr @emu_static, i64 {self.static})"
            self.lines.append(f"{name} = internal alias {rest[:end]}, ptr {place}")
            self.globals.append((name, name, size, _SHARED_KIND))
            self.static += size + _GAP

    def _define(self, line: str) -> None:
        match = _DEFINE.match(line)
        if match is None:
            raise ValueError(f"no function: {line}")
        end = closing(line, match.end() - 1)
        arguments = split(line[match.end() : end])
        self.invariant = {
            argument.split()[-1]
            for argument in arguments
            if argument.startswith("ptr") and "noalias" in argument and "readonly" in argument
        }
        if "ptx_kernel" in match[1]:
            self.kernels.append((match[2], [argument[: type_at(argument)[0]] for argument in arguments]))
        head = _CONTROL_KIND.sub("", line[: match.end()])
        self.lines.append(head + _ARGUMENT_FACTS.sub("", line[match.end() : end]) + line[end:])

    def _instruction(self, line: str) -> None:
        result = _RESULT.match(line)
        name, text = (result[1], result[2]) if result else (None, line)
        if name and re.match(r"(?:getelementptr|bitcast) ", text):
            self._follow(name, text)
        if local := _LOCAL.match(text):
            self.lines.append(line)
            size = type_at(local[1])[1] * int(local[2] or 1)
            self.lines.append(f"  call void @emu_local(ptr {name}, i64 {size})")
            return
        copied = _MEMORY.search(line)
        access = None if copied else _access(text)
        if access:
            pointer, size, flags = access
            stated = _ALIGN.search(text)
            if "!invariant.load" in text or (pointer in self.invariant and flags == _READ):
                flags |= _INVARIANT
            announced = f"ptr {pointer}, i64 {size}, i32 {stated[1] if stated else 1}, i32 {flags}"
            self.lines.append(f"  call void @emu_access({announced}, i32 {self._site(line)})")
        self.lines.append(self._copy(line, copied) if copied else self._calls(line))

    def _follow(self, name: str, text: str) -> None:
        base = re.search(rf"ptr (%{_NAME})", text)
        if base and base[1] in self.invariant:
            self.invariant.add(name)

    def _copy(self, line: str, match: re.Match[str]) -> str:
        kind = "memset" if match[1] == "memset" else "memcpy"
        arguments = [
            re.sub(r"^(ptr|i\d+) .*?([%@\w.\"-]+)$", r"\1 \2", argument) for argument in split(match[2])[:3]
        ]
        return f"  call void @emu_{kind}(i32 {self._site(line)}, {', '.join(arguments)})"

    def _calls(self, line: str) -> str:
        assembly = _ASM.search(line)
        if assembly:
            return self._assembly(line, assembly)
        match = _INTRINSIC.search(line)
        if match is None:
            return line
        symbol = _symbol(match[1])
        called = f"by_memory_{symbol}" if symbol in self.by_memory else symbol
        rest = line[match.end() :]
        comma = "" if rest.startswith(")") else ", "
        return f"{line[: match.start()]}@{called}(i32 {self._site(line)}{comma}{rest}"

    def _assembly(self, line: str, match: re.Match[str]) -> str:
        symbol = _ASSEMBLY.get(match[2])
        if symbol is None:
            raise ValueError(f"assembly that the emulator does not know: {match[2]!r}")
        types = [argument[: type_at(argument)[0]] for argument in split(match[3])]
        declared = f"declare {match[1]} @{symbol}({', '.join(['i32', *types])})"
        if declared not in self.heads:
            self.heads.append(declared)
        call = f"call {match[1]} @{symbol}(i32 {self._site(line)}, {match[3]})"
        return line[: match.start()] + call + line[match.end() :]

    def _tables(self) -> list[str]:
        lines = [f"@emu_static = internal global [{self.static + _GAP} x i8] zeroinitializer, align 128"]
        room = f"[{DYNAMIC_ROOM + _MOST_ALIGNED} x i8]"
        lines.append(f"@emu_room = internal global {room} zeroinitializer, align 128")
        place = f"getelementptr (i8, ptr @emu_room, i64 {self.dynamic})"
        lines.append(f"@emu_dynamic = alias [{DYNAMIC_ROOM} x i8], ptr {place}")
        entries, places = list[str](), list[str]()
        for i, (name, types) in enumerate(self.kernels):
            lines += _thunk(i, name, types) + _text(f"entry{i}", name)
            entries.append(f"{{ ptr, ptr }} {{ ptr @emu_entry{i}, ptr @emu_call{i} }}")
        self.globals.append(("dynamic shared memory", "@emu_dynamic", 0, _SHARED_KIND))
        for i, (text, name, size, kind) in enumerate(self.globals):
            lines += _text(f"global{i}", text)
            places.append(f"{_PLACE} {{ ptr @emu_global{i}, ptr {name}, i64 {size}, i32 {kind} }}")
        lines += _table("emu_entries", "{ ptr, ptr }", entries)
        return lines + _table("emu_globals", _PLACE, places)


_PLACE = "{ ptr, ptr, i64, i32 }"
_RUNTIME = f"""
@emu_dynamic_room = constant i64 {DYNAMIC_ROOM}
declare void @emu_access(ptr, i64, i32, i32, i32)
declare void @emu_local(ptr, i64)
declare void @emu_memcpy(i32, ptr, ptr, i64)
declare void @emu_memset(i32, ptr, i8, i64)
"""


def _hosted(line: str) -> str:
    """Without address spaces; a shared global keeps the word SHARED, which ``_global`` takes away."""
    if line.startswith("@"):
        line = line.replace("addrspace(3)", "SHARED", 1)
    line = re.sub(r",? addrspace\(\d+\)", "", line)
    return _TARGET_TEXT.sub("", line.replace("addrspacecast ", "bitcast "))


def _symbol(name: str) -> str:
    return "emu_" + name.removeprefix("llvm.").removeprefix("nvvm.").replace(".", "_")


def _access(text: str) -> tuple[str, int, int] | None:
    """Pointer, bytes and flags of an instruction that touches memory."""
    for word, flags in (("load", _READ), ("store", _WRITE), ("atomicrmw", 7), ("cmpxchg", 7)):
        if not text.startswith(word + " "):
            continue
        rest = re.sub(r"^(?:(?:atomic|volatile|weak) )*", "", text[len(word) + 1 :])
        if word == "load":
            end, size, _ = type_at(rest)
        elif word == "store":
            at, size, _ = type_at(rest)
            end = _value_end(rest, at + 1)
        else:
            at = operand_at(rest, rest.index("ptr ") + 4)
            pointer = rest[rest.index("ptr ") + 4 : at]
            return pointer, type_at(rest, at + 2)[1], flags
        at = rest.index("ptr ", end) + 4
        return rest[at : operand_at(rest, at)], size, flags
    return None


def _value_end(text: str, at: int) -> int:
    """Where the value of a store ends: the comma before its pointer."""
    depth = 0
    for i in range(at, len(text)):
        depth += (text[i] in "([{<") - (text[i] in ")]}>")
        if text[i] == "," and depth == 0:
            return i
    raise ValueError(f"no pointer in {text!r}")


def _thunk(index: int, name: str, types: list[str]) -> list[str]:
    """Calls a kernel with parameters of 8 bytes each."""
    lines = [f"define void @emu_call{index}(ptr %params) {{"]
    for i, kind in enumerate(types):
        lines.append(f"  %p{i} = getelementptr i64, ptr %params, i64 {i}")
        lines.append(f"  %v{i} = load {kind}, ptr %p{i}")
    arguments = ", ".join(f"{type_text} %v{i}" for i, type_text in enumerate(types))
    return [*lines, f"  call void {name}({arguments})", "  ret void", "}"]


def _text(name: str, text: str) -> list[str]:
    data = text.removeprefix("@").replace('"', "")
    return [f'@emu_{name} = internal constant [{len(data) + 1} x i8] c"{data}\\00"']


def _table(name: str, kind: str, rows: list[str]) -> list[str]:
    rows = [*rows, f"{kind} zeroinitializer"]
    return [f"@{name} = constant [{len(rows)} x {kind}] [{', '.join(rows)}]"]
