"""Functions written in Python: numba types them and writes LLVM's language, and LLVM makes an eBPF object of that.

numba's optimiser and its machine code are not used: a context of our own gives what it wrote as it stands. LLVM, as the
package ``llvmlite`` has it, optimises that without vectors and compiles it for eBPF. What eBPF has no instructions for,
floating-point numbers above all, ``diskside-llvm`` makes calls of, as it does with C.
"""

from __future__ import annotations

import dis
import functools
import re
import threading
from types import CellType, FunctionType
from typing import TYPE_CHECKING, Any

from . import _diskside
from ._columns import numba_type
from ._entry import CALL, Compiled, Notes, Rows, Shape, entry_module, quoted, stack_note
from ._shape import Written, shape_of_columns, shape_of_records
from .errors import CompileError, NoCompilerError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: Bytes of a stack frame when variables stay in memory.
_STACK_BYTES = 8192
#: What numba knows this target by.
_TARGET = "diskside"
_TRIPLE = "bpfel-unknown-none"
#: The first instruction set with signed division.
_CPU = "v4"


def object_of(
    function: Callable[..., Any],
    *,
    records: Any,
    result: Any,
    args: Mapping[str, Any] | None,
    combine: Callable[..., Any] | str | None,
    output_max: int | str | None,
    columns: Any,
    select: bool | None,
) -> bytes:
    """Compiles a function, and the one that folds its results, to an eBPF object."""
    main, fold = Written.of(function), None
    if callable(combine):
        fold = Written.of(combine)
    elif combine not in (None, "concatenate"):
        raise UsageError(f"{main.name}: combine is a function of (acc, part), or 'concatenate'; this is {combine!r}")
    if columns is None and not select:
        shape, notes = shape_of_records(main, records, result, args, fold is not None, combine == "concatenate", output_max)
    else:
        if records is not None:
            raise UsageError(f"{main.name}: it reads records or columns, not both")
        shape, notes = shape_of_columns(main, columns, result, args, fold is not None, combine == "concatenate", output_max, bool(select))
    llvm = _llvm()
    with _compiling:
        module = _linked(llvm, main, fold, shape, notes)
        _optimise(llvm, module, {main.name, f"{main.name}_fold"})
        text = _with_sources(str(module), [main] if fold is None else [main, fold])
    _refuse_what_is_not_there(text, main)
    return _emitted(llvm, text, main)


# --- numba: from Python to LLVM's language ---------------------------------------------------------------------------------

_compiling = threading.RLock()
_contexts: tuple[Any, Any, Any] | None = None


def _numba_contexts() -> tuple[Any, Any, Any]:
    """Types, a target that leaves alone what numba wrote, and the dispatcher for it."""
    global _contexts
    if _contexts is not None:
        return _contexts
    import numba
    from numba.core import codegen, cpu, descriptors, dispatcher, target_extension, typing

    class Library(codegen.JITCodeLibrary):  # type: ignore[misc]
        def _optimize_functions(self, module: Any) -> None:
            pass

        def _optimize_final_module(self) -> None:
            pass

        def _finalize_specific(self) -> None:
            pass

    class Codegen(codegen.JITCPUCodegen):  # type: ignore[misc]
        _library_class = Library

    class Context(cpu.CPUContext):  # type: ignore[misc]
        def init(self) -> None:
            super().init()
            self._internal_codegen = Codegen(_TARGET)

    class Target(target_extension.CPU):  # type: ignore[misc]
        pass

    target_extension.target_registry[_TARGET] = Target
    types = typing.Context()
    target = Context(types, _TARGET)

    class Descriptor(descriptors.TargetDescriptor):  # type: ignore[misc]
        options = cpu.CPUTargetOptions
        typing_context = types
        target_context = target

    class Dispatcher(dispatcher.Dispatcher):
        targetdescr = Descriptor(_TARGET)

    target_extension.dispatcher_registry[Target] = Dispatcher
    # What numba itself has in Python, it compiles with this.
    target_extension.jit_registry[Target] = functools.partial(numba.jit, _target=_TARGET)
    with target_extension.target_override(_TARGET):
        types.refresh()
        target.refresh()
    _contexts = (types, target, Dispatcher)
    return _contexts


def _numba_type(rows: Rows, is_read_only: bool) -> Any:
    from numba.core import types
    from numba.np.numpy_support import from_dtype

    element = from_dtype(rows.dtype)
    if rows.is_one:
        return element
    return types.Array(element, 2 if rows.width else 1, "C", readonly=is_read_only)


def _compiled(written: Written, types: tuple[Any, ...]) -> tuple[Compiled, str]:
    """What numba makes of a function, and that in LLVM's language."""
    import warnings

    from numba.core import compiler, errors
    from numba.core.compiler_lock import global_compiler_lock
    from numba.core.target_extension import target_override
    from numba.core.targetconfig import ConfigStack

    if written.parameters != len(types):
        raise UsageError(f"{written.name} has {written.parameters} parameters; it takes {len(types)}")
    flags = compiler.Flags()
    flags.nrt = False
    flags.enable_pyobject = False
    flags.error_model = "numpy"
    flags.boundscheck = False
    flags.no_cpython_wrapper = True
    flags.no_cfunc_wrapper = True
    flags.debuginfo = True
    flags.dbg_directives_only = True
    typing_context, target, dispatcher = _numba_contexts()
    function = _with_its_own(written.function, dispatcher, {})
    try:
        with global_compiler_lock, target_override(_TARGET), ConfigStack().enter(flags), warnings.catch_warnings():
            warnings.simplefilter("ignore", errors.NumbaWarning)
            library = target.codegen().create_library(written.name)
            made = compiler.compile_extra(
                typing_context, target, function, types, None, flags, {}, library=library
            )
    except (errors.NumbaError, errors.UnsupportedBytecodeError, NotImplementedError) as error:
        raise _explained(error, written) from error
    except KeyError as error:
        # So it says that a row has no such member, and not where.
        raise _no_member(written, types, str(error.args[0])) from error
    returned: Any = made.signature.return_type
    returned = getattr(returned, "literal_type", returned)
    returns = None
    if hasattr(returned, "bitwidth") and hasattr(returned, "signed"):
        returns = (returned.bitwidth, returned.signed)
    elif returned.name != "none":
        raise _refused(written, written.line, f"it returns {returned}; it returns the number of its rows, or nothing")
    return Compiled(made.fndesc.mangled_name, returns), library.get_llvm_str()


def _with_its_own(function: Any, dispatcher: Any, known: dict[Any, Any]) -> Any:
    """The function, with those of its module and of ``numba.njit`` that it calls compiled for this target, too."""
    if function in known:
        return known[function]
    names = dict(function.__globals__)
    known[function] = copy = FunctionType(
        function.__code__, names, function.__name__, function.__defaults__, function.__closure__
    )

    def called(value: Any) -> Any:
        plain = getattr(value, "py_func", value)
        if not isinstance(plain, FunctionType) or (plain is value and plain.__module__ != function.__module__):
            return value
        return dispatcher(_with_its_own(plain, dispatcher, known), targetoptions={"nopython": True, "boundscheck": None})

    for name in function.__code__.co_names:
        if name in names:
            names[name] = called(names[name])
    if function.__closure__:
        cells = tuple(_cell(cell, called) for cell in function.__closure__)
        known[function] = copy = FunctionType(
            function.__code__, names, function.__name__, function.__defaults__, cells
        )
    return copy


def _cell(cell: Any, called: Callable[[Any], Any]) -> Any:
    try:
        return CellType(called(cell.cell_contents))
    except ValueError:
        # What the decorator is about to give has a name, and is not there yet.
        return cell


#: How numba says that a function of numpy's would make an array.
_MAKES_ARRAYS = r"Function\(<(built-in )?function (array|arange|copy|empty|full|linspace|ones|zeros)\w*( at [^>]*)?>\) found for"


def _explained(error: Any, written: Written) -> CompileError:
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    file = re.escape(written.file)
    places = re.findall(rf'[/"]{file}", line (\d+)| at \S*/{file} \((\d+)\)', text)
    at = getattr(error, "loc", None)
    if places:
        line = int("".join(places[-1]))
    else:
        line = at.line if at is not None and at.filename.endswith(written.file) else written.line
    if "NRT required but not enabled" in text or re.search(_MAKES_ARRAYS, text):
        return _refused(written, line, _RUNTIME)
    if "Cannot modify readonly array" in text:
        return _refused(written, line, "the records cannot be changed: what a function gives is in its first parameter")
    said = [one for one in text.splitlines() if one.strip() and not one.startswith(("Failed in", "During:", "File ", ">>>"))]
    return _refused(written, line, "\n".join(said[:12]))


def _no_member(written: Written, types: tuple[Any, ...], name: str) -> CompileError:
    code = written.function.__code__
    line, has = written.line, []
    for instruction in dis.get_instructions(code):
        at = instruction.positions
        if instruction.argval == name and instruction.opname.endswith("_ATTR") and at is not None and at.lineno is not None:
            line = at.lineno
    for parameter, kind in zip(code.co_varnames, types, strict=False):
        members = getattr(getattr(kind, "dtype", kind), "fields", None)
        has += [f"{parameter} has {', '.join(members)}"] if members else []
    return _refused(written, line, f"there is no member `{name}`: {'; '.join(has)}")


def _refused(written: Written, line: int, why: str) -> CompileError:
    return CompileError(f"{written.name} does not compile:\n{written.file}:{line}: {why}")


_RUNTIME = (
    "this needs Python's runtime: lists, dictionaries, sets, text and arrays that are made inside have no place in a function; "
    "use numbers, and the rows that it is given"
)


# --- LLVM: from its language to an object ----------------------------------------------------------------------------------


def _llvm() -> Any:
    """The binding of LLVM that numba brings."""
    try:
        import numba  # noqa: F401
        from llvmlite import binding
    except ImportError as error:
        raise NoCompilerError(f"functions written in Python need numba ({error}): pip install 'numba>=0.68,<0.69'") from None
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    return binding


def _machine(llvm: Any) -> Any:
    return llvm.Target.from_triple(_TRIPLE).create_target_machine(cpu=_CPU, opt=2)


def _linked(llvm: Any, main: Written, fold: Written | None, shape: Shape, notes: Notes) -> Any:
    out = _numba_type(shape.out, False)
    records = numba_type(shape.columns) if shape.columns else _numba_type(shape.records, True)
    types = [out, records]
    if shape.args is not None:
        types.append(_numba_type(shape.args, True))
    if shape.parameters > 3:
        import numpy

        call = numpy.dtype([tuple(field.split(":")) for field in CALL.split()])
        types.append(_numba_type(Rows(call, is_one=True), True))
    made, text = _compiled(main, tuple(types))
    if notes.selects and made.returns is not None:
        raise _refused(main, main.line, "it returns something; one that selects sets a byte for each row in its first parameter")
    texts, made_fold = [text], None
    if fold is not None:
        made_fold, text = _compiled(fold, (out, out))
        if made_fold.returns is not None:
            raise _refused(fold, fold.line, "it returns something; it changes acc, and returns nothing")
        texts.append(text)
    texts.append(entry_module(main.name, (main.file, main.line), shape, notes, made, made_fold))
    machine = _machine(llvm)
    module = None
    for text in texts:
        parsed = llvm.parse_assembly(_plain(text))
        parsed.triple = _TRIPLE
        parsed.data_layout = str(machine.target_data)
        if module is None:
            module = parsed
        else:
            module.link_in(parsed)
    return module


#: Functions of C's library that are operations of LLVM's.
_MATHS = "sqrt|fabs|floor|ceil|trunc|rint|nearbyint|round|copysign"


def _plain(text: str) -> str:
    """Without what is said of this machine's processor, and of how functions are to be inlined."""
    text = re.sub(r"^attributes #\d+ = .*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"^target .*$", "", text, flags=re.MULTILINE)
    # Lines are told of, variables and their types are not: there is no debugger.
    text = re.sub(r"^ *#dbg_.*$\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"!DISubroutineType\(types: !\d+\)", "!DISubroutineType(types: !{})", text)
    # numba's names are other ones each time: one source would be many objects.
    text = re.sub(r'linkageName: "[^"]*", ', "", text)
    text = text.replace("emissionKind: DebugDirectivesOnly", "emissionKind: FullDebug")
    text = re.sub(rf"@({_MATHS})(f?)\(", lambda found: f"@llvm.{found[1]}.f{32 if found[2] else 64}(", text)
    return re.sub(r" #\d+(?=[ ,]|$)", "", text, flags=re.MULTILINE)


def _optimise(llvm: Any, module: Any, entries: set[str]) -> None:
    for function in module.functions:
        if not function.is_declaration and function.name not in entries:
            function.linkage = "internal"
            function.add_function_attribute("alwaysinline")
    for variable in module.global_variables:
        # Of numba's environments, which nothing refers to.
        if variable.linkage.name == "common":
            variable.linkage = "internal"
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    # eBPF has no vectors, and a loop that is unrolled is one whose checks are not hoisted.
    options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = False
    passes = llvm.create_pass_builder(_machine(llvm), options)
    passes.getModulePassManager().run(module, passes)


def _with_sources(text: str, sources: list[Written]) -> str:
    """With the text of the functions, which messages show lines of, instead of where it is on this machine."""
    texts = {source.file: source.text for source in sources}

    def told(found: re.Match[str]) -> str:
        file = found[1].rpartition("/")[2]
        return f'!DIFile(filename: "{file}", directory: "", source: "{quoted(texts.get(file, ""))}")'

    return re.sub(r'!DIFile\(filename: "([^"]*)", directory: "[^"]*"\)', told, text)


def _refuse_what_is_not_there(text: str, written: Written) -> None:
    for symbol in re.findall(r'^declare .*?@"?([^"(\s]+)"?\(', text, re.MULTILINE):
        if symbol.startswith(("llvm.", "ds_")):
            continue
        call = re.search(rf'call .*@"?{re.escape(symbol)}"?\(.*!dbg (!\d+)', text)
        place = call and re.search(rf"^{call[1]} = !DILocation\(line: (\d+)", text, re.MULTILINE)
        line = int(place[1]) if place else written.line
        if symbol.startswith(("NRT_", "Py", "numba_", "_Py")):
            raise _refused(written, line, f"{_RUNTIME} ({symbol})")
        raise _refused(written, line, f"`{symbol}` is not among the operations of functions; docs/functions.md lists them")


def _emitted(llvm: Any, text: str, written: Written) -> bytes:
    stack_bytes = 512
    if re.search(r"= alloca ", text):
        stack_bytes = _STACK_BYTES
        text = f"{stack_note(stack_bytes)}\n{text}"
    needs_lowering = re.search(r"\b(double|float|half)\b|@llvm\.mem", text) or stack_bytes > 512
    if not needs_lowering:
        return bytes(_machine(llvm).emit_object(llvm.parse_assembly(_aligned(text))))
    if not _diskside.has_lowering():
        raise NoCompilerError(
            f"{written.name}: floating-point numbers, long copies and arrays on the stack are compiled by diskside-llvm, which "
            "is not here: the wheel does not have it: in Diskside's source, scripts/setup --for llvm and make install make it; whole numbers "
            "need numba alone"
        )
    return bytes(_diskside.lower(written.file, _older(text).encode(), stack_bytes))


def _aligned(text: str) -> str:
    """The sandbox loads and stores at any address, where the back end would take bytes one by one."""

    def natural(found: re.Match[str]) -> str:
        return f"{found[1]}{found[2]}{found[3]}{int(found[2]) // 8}"

    return re.sub(r"\b((?:load|store) i)(16|32|64)(\b.*?, align )\d+", natural, text)


def _older(text: str) -> str:
    """As an LLVM reads it that is older than llvmlite's: without the hints that it does not know."""
    text = re.sub(r"^attributes #\d+ = .*$", "", text, flags=re.MULTILINE)
    text = re.sub(r" #\d+(?=[ ,]|$)", "", text, flags=re.MULTILINE)
    text = re.sub(r" captures\([^)]*\)| initializes\(\([^)]*\)\)| dead_on_return", "", text)
    text = text.replace("icmp samesign ", "icmp ")
    return re.sub(r"getelementptr (?:inbounds |nusw |nuw )+", "getelementptr ", text)
