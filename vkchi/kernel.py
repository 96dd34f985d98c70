"""Decorators and their objects: `kernel`, `func`, `real_func`, `pyfunc`, `data_oriented`.

A kernel has a table from signatures to compiled kernels.

    @ti.kernel
    def saxpy(a: ti.f32, x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            y[i] = a * x[i] + y[i]
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from time import perf_counter
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar, overload

from vkchi import env
from vkchi.compile_state import compiling
from vkchi.errors import (
    ArgumentError,
    ArgumentListError,
    CompilationError,
    KernelRuntimeError,
    KernelSyntaxError,
)
from vkchi.hooks import Hook
from vkchi.interrupts.contexts import release_wholly, restoring
from vkchi.interrupts.imports import run_in_thread
from vkchi.launch.call_cache import CallCache, GuardedKernels, compile_stable
from vkchi.launch.compiled_kernel import Accepted, CompiledKernel, path_of
from vkchi.pickling import PickledFunction
from vkchi.runtime import Runtime, current_runtime
from vkchi.signature import (
    VARARGS,
    VARKEYWORDS,
    MissingAnnotation,
    declared_parameters,
    read_parameters,
    show_function,
    span_of_function,
)
from vkchi.signature.signer import Signer
from vkchi.target.remarks import issue_warnings
from vkchi.tracebacks import is_full

if TYPE_CHECKING:
    from inspect import Signature

    from vkchi.cache.compiled import Compiled
    from vkchi.cache.store import CacheStore
    from vkchi.frontend.argspec import ArgSpec
    from vkchi.signature.bound import ImportedArray
    from vkchi.target.caps import Caps
    from vkchi.target.options import Options
    from vkchi.target.remarks import Log

C = TypeVar("C", bound=type)


T = TypeVar("T")
NOTHING: Sequence[ImportedArray] = ()


class Kernel(PickledFunction):
    """A kernel, compiled on demand. A call launches it on the current device and returns its
    result.

    Raises CompilationError for errors in its body, ArgumentError for unsuitable arguments.
    """

    __vkchi_kind__ = "kernel"
    process_state = ("_cache", "_caches", "_signature")
    _cache: CallCache | None = None  # of the last runtime
    _caches: Mapping[int, CallCache] = {}  # by the id of their runtime, which they keep alive

    def __init__(self, fn: FunctionType) -> None:
        functools.update_wrapper(self, fn)
        self.__vkchi_func__ = fn
        keep_typed_source(fn)
        self.is_method = looks_like_method(fn)
        if not any(isinstance(note, str) for note in fn.__annotations__.values()):
            read_parameters(fn, self.is_method)  # raises at the definition
        kinds = [p.kind for p in declared_parameters(fn)]
        self._in_order = -1 if "keyword" in kinds else len(kinds)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        runtime, cache = current_runtime(), self._cache
        if kwargs or len(args) != self._in_order:
            args = self.arrange(args, kwargs)
        if cache is not None and cache.runtime is runtime and cache.entries:
            entry = cache.entries.get(cache.signer.key(args))  # inlined `cache.find`, for speed
            if entry is not None and (held := entry.guard.holds(args)):
                try:
                    given = args if held is True else held
                    if runtime.recording is None:
                        return entry.launch(given)
                    return launch_or_record(self.__vkchi_func__.__name__, entry.kernel, given)
                except ArgumentError as e:
                    raise self._named(e) from None
                except CompilationError as e:
                    raise shortened(e) from e.__cause__
        return self._run(args, launch_or_record)

    def __repr__(self) -> str:
        return show_function("kernel", self.__vkchi_func__)

    def grad(self, *args: Any, **kwargs: Any) -> None:
        """Run the reverse-mode gradient of a call with these arguments.

        Adds to the gradients of the values that the call reads, from those of the values that it
        writes. Raises GradientError if vkchi cannot compute a correct gradient.
        """
        from vkchi.tape.kernel_grad import run_gradient  # few programs need it

        tape = current_runtime().tape
        if tape is not None and tape.kind == "record":
            tape.grad(self.__vkchi_func__.__name__)
        self._run(self.arrange(args, kwargs), run_gradient, is_shared=True)

    def explain(self, *args: Any, **kwargs: Any) -> None:
        """Print how a call with these arguments would run; compiles the kernel, but does not run
        it.

        For each outermost loop: parallel, or the reason why it is serial; iterations, workgroups,
        bytes per iteration. Also atomics that remain, accesses that are not proved in range, and
        arguments that are copied.
        """
        from vkchi.launch.explain import explain_call  # few programs need it

        look = functools.partial(explain_call, self)
        print(self._run(self.arrange(args, kwargs), look, is_shared=True, is_run=False))

    def compile_logged(self, kernel: CompiledKernel, args: tuple[Any, ...], log: Log) -> Compiled:
        """Compile the kernel again for these arguments, without the cache; add the decisions to
        `log`."""
        signer, runtime = kernel.signer, kernel.runtime
        args = args[: len(signer.parameters)]
        specs = signer.specs(args, signer.sign(args))
        options = runtime.options._replace(in_order=kernel.in_order, cache=None)
        compile_kernel, _ = _load_compiler()
        return compile_kernel(self.__vkchi_func__, specs, options, runtime.device.caps, log)

    def inspect(self, look: Callable[[CompiledKernel, Any], T], *args: Any) -> T:
        """Return `look(kernel, args)` for a call with these arguments, without a launch."""
        args = self.arrange(args, {})
        found: T = self._run(args, lambda name, kernel, given: look(kernel, given), is_run=False)
        return found

    def dispatch(self, act: Callable[..., Any], *args: Any) -> Any:
        """Return `act(name, kernel, args)`, run in place of a launch with these arguments.

        Host arrays that are used in place are passed as a fourth argument.
        """
        return self._run(self.arrange(args, {}), act, is_shared=True)

    def _run(
        self, args: tuple[Any, ...], act: Callable[..., Any], *,
        is_shared: bool = False, is_run: bool = True,
    ) -> Any:  # fmt: skip
        """Return `act(name, kernel, args)` with the kernel compiled for these arguments.

        `is_shared`: host arrays used in place are passed as a fourth argument. `is_run`: `act` runs
        the kernel.
        """
        runtime, cache = current_runtime(), self._cache
        if cache is None or runtime is not cache.runtime:
            cache = self._cache = self._cache_on(runtime)
        try:
            cache, args = cache.expand(args)
            if act is launch_or_record and runtime.recording is None:
                return self._launch(cache, args)
            return self._act(cache, args, act, is_shared=is_shared, is_run=is_run)
        except ArgumentError as e:
            raise self._named(e) from None
        except CompilationError as e:
            raise shortened(e) from e.__cause__

    def _named(self, error: ArgumentError) -> ArgumentError:
        return ArgumentError(f"{self.__vkchi_func__.__name__}(): {error}")

    def _launch(self, cache: CallCache, args: tuple[Any, ...]) -> Any:
        """Launch outside of tapes, and note the call."""
        runtime, signer = cache.runtime, cache.signer.resolved(args)
        args, shared = signer.share(signer.adopt(args), runtime, is_launch=True)
        found = cache.find(args)  # of shared arrays, or of the device that was just changed to
        if found is not None:
            return found[0].launch(found[1], shared)
        kernel, args = self._compiled_for(cache, args)
        if shared:
            result = kernel.launch_in_place(args, shared)  # more checks than `entry`
            cache.note(kernel, args)
            return result
        entry = cache.note(kernel, args)
        if entry is not None and runtime.recording is None:  # bound once
            return entry.launch(args)
        return launch_or_record(self.__vkchi_func__.__name__, kernel, args)

    def _act(
        self, cache: CallCache, args: tuple[Any, ...], act: Callable[..., Any], *,
        is_shared: bool, is_run: bool,
    ) -> Any:  # fmt: skip
        """Slow path for actions other than launches, and for launches under a tape."""
        signer = cache.signer.resolved(args)
        args, shared = signer.adopt(args), NOTHING
        if is_shared and cache.runtime.recording is None:
            args, shared = signer.share(args, cache.runtime, is_launch=False)
        on_device = act is not launch_or_record or cache.runtime.tape is not None
        kernel, full = self._compiled_for(cache, args, on_device=on_device, is_run=is_run)
        given = (full, shared) if shared else (full,)
        result = act(self.__vkchi_func__.__name__, kernel, *given)
        if act is launch_or_record and cache.find(args) is None:
            cache.note(kernel, full)
        return result

    def _compiled_for(
        self, cache: CallCache, args: tuple[Any, ...], *,
        on_device: bool = False, is_run: bool = True,
    ) -> Accepted:  # fmt: skip
        """Return the kernel compiled for these arguments and the current Python values, and the
        arguments with member arrays.

        With `on_device`, it does not run as Python.
        """
        key = cache.signer.resolved(args).sign(args)
        kernel = cache.latest(args, key)
        full = None if kernel is None else kernel.accept(args)
        if kernel is None or full is None:
            kernel, full = self._find_compiled(cache, args, key)
        if on_device:
            kernel, full = kernel.on_device(full)
        if kernel.watch is not None:
            return self._watched(cache, kernel, full, key, is_run)
        return kernel, full

    def _watched(
        self,
        cache: CallCache,
        kernel: CompiledKernel,
        args: tuple[Any, ...],
        key: tuple[Any, ...],
        is_run: bool,
    ) -> Accepted:
        """The kernel, or its variant in which the loops that race in this call are serial."""
        watch, runtime = kernel.watch, cache.runtime
        with restoring(runtime.lock), runtime.lock:
            assert watch is not None
            in_order = watch.look(kernel, args, is_run=is_run)
            if not in_order:
                return kernel, args
            given = args[: len(cache.signer.parameters)]

            def make() -> CompiledKernel:
                made = self._compile(cache, given, key, is_kept=watch.is_kept, in_order=in_order)
                made.watch = watch
                return made

            return watch.variants.setdefault(in_order, GuardedKernels()).find_or_add(given, make)

    def __get__(self, obj: Any, owner: Any = None) -> Any:
        return self if obj is None else BoundKernel(self, obj)

    def _cache_on(self, runtime: Runtime) -> CallCache:
        """The CallCache of a runtime. A new table replaces those of closed runtimes."""
        found = self._caches.get(id(runtime))
        if found is None:
            signer = Signer(read_parameters(self.__vkchi_func__, self.is_method))
            found = CallCache(runtime, signer)
            others = {k: p for k, p in self._caches.items() if not p.runtime.device.closed}
            self._caches = {**others, id(runtime): found}
        return found

    def _find_compiled(
        self, cache: CallCache, args: tuple[Any, ...], key: tuple[Any, ...]
    ) -> Accepted:
        """Find or compile the kernel for a new signature, or for new values of Python variables."""
        runtime, name = cache.runtime, self.__vkchi_func__.__name__
        runtime.device.require_open()  # before the lock: a thread may hold it at exit
        with restoring(runtime.lock), runtime.lock:
            own, shared = cache.tables(args, key)
            found = own.find(args) or shared.find(args)
            if found is None:
                known = own if own.kernels else shared
                is_python = runtime.options.python and runs_as_python(self.__vkchi_func__)
                rebound = None if is_python else shared.rebound(args)
                if rebound is None:
                    known.count(name, args)
                on_device = functools.partial(self._compile, compiled=rebound)
                compile_ = self._compile_python if is_python else on_device
                make = functools.partial(compile_, cache, args, key, is_kept=not known.is_volatile)
                found = compile_stable(make, args)
                (own if found[0].is_own else shared).add(found[0], args)
                cache.keep(
                    own, shared, args, key, functools.partial(forget_stale, weakref.ref(self))
                )
            return found

    def _compile(
        self, cache: CallCache, args: tuple[Any, ...], key: tuple[Any, ...], *,
        is_kept: bool, in_order: tuple[int, ...] = (), compiled: Compiled | None = None,
    ) -> CompiledKernel:  # fmt: skip
        """Load the kernel from the cache, or compile it; or bind compiled code.

        `is_kept`: use the cache. `in_order`: indices of parallel loops to compile as serial loops.
        """
        runtime, fn = cache.runtime, self.__vkchi_func__
        signer = cache.signer.resolved(args)
        began = perf_counter()
        specs = signer.specs(args, key)
        with compiling(fn.__name__):
            options = runtime.options._replace(in_order=in_order)
            options = options if is_kept else options._replace(cache=None)
            is_new = compiled is None
            compiled = compiled or find_compiled(fn, specs, options, runtime.device.caps)
            kernel = CompiledKernel(runtime, compiled, signer, args, fn)
            kernel.in_order = in_order
            kernel.renew = functools.partial(renew_compiled, weakref.ref(self), weakref.ref(cache))
            if runtime.options.debug and not runtime.options.accepts_races(path_of(fn)):
                from vkchi.races.debug import launch_observed  # 0.1 s

                kernel.observer = launch_observed
            is_watched = kernel.observer is None or runtime.is_cpu_wanted
            if compiled.may_race and not in_order and is_watched and not kernel.has_pools:
                from vkchi.races.watch import RaceWatch

                kernel.watch = RaceWatch(is_kept)
        if is_new:
            runtime.compiled.append((fn.__name__, perf_counter() - began))
            if runtime.on_compiled is not None:
                runtime.on_compiled(fn)
        return kernel

    def _compile_python(
        self, cache: CallCache, args: tuple[Any, ...], key: tuple[Any, ...], *, is_kept: bool
    ) -> CompiledKernel:
        """Compile the kernel to run as plain Python."""
        make_kernel = _load_python_mode()

        fn, signer = self.__vkchi_func__, cache.signer.resolved(args)

        def compile_for_device(args: tuple[Any, ...]) -> CompiledKernel:
            return self._compile(cache, args, key, is_kept=is_kept)

        return make_kernel(cache.runtime, fn, signer, args, key, compile_for_device)

    def forget_stale(self) -> None:
        """Drop the compiled kernels whose signatures name dead objects, and all entries."""
        for cache in list(self._caches.values()):
            cache.forget_stale()

    @functools.cached_property
    def _signature(self) -> Signature:
        import inspect  # 7 ms; not needed for positional calls

        return inspect.signature(self.__vkchi_func__)

    def arrange(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Arguments in order, with keywords and defaults. Raises ArgumentListError."""
        if not kwargs and len(args) == self._in_order:
            return args
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as e:
            raise ArgumentListError(self._why_unbound(str(e), kwargs)) from None
        bound.apply_defaults()
        return tuple(bound.arguments.values())

    def _why_unbound(self, why: str, kwargs: dict[str, Any]) -> str:
        """Message for a call with missing, surplus or unknown arguments; an unknown name comes
        first, because a typo explains both."""
        names = self._signature.parameters
        unknown = [name for name in kwargs if name not in names]
        if unknown:
            why = f"got an unexpected keyword argument '{unknown[0]}'"
        hint = "\nhelp: a method begins with `self`" if self.is_method and not names else ""
        return f"{self.__vkchi_func__.__name__}({', '.join(names) or 'nothing'}): {why}{hint}"


def load_ahead(cache: CacheStore | None) -> None:
    """Import the modules that fields and the first kernel call need.

    Imports the compiler too, if the cache is off or empty.
    """
    import_module("vkchi.fields.constructors")
    if cache is not None:
        import_module("vkchi.cache.manifest")
    if cache is None or cache.is_empty():
        from vkchi.compiler import load_compiler  # not needed with a warm cache

        load_compiler()
        import_module("vkchi.launch.specialization")


def find_compiled(
    fn: FunctionType, args: tuple[ArgSpec, ...], options: Options, caps: Caps
) -> Compiled:
    """A kernel from the cache, or compiled. Issues its source warnings, unless `options.in_order`.

    Raises CompilationError, DeviceError.
    """
    if options.cache is None or env.shows_stages():
        found = compile_anew(fn, args, options, caps)
    else:
        found = _load_cache()(fn, args, options, caps, options.cache, compile_anew)
    if found.interface.cautions and not options.in_order:
        issue_warnings(found.interface.cautions)
    return found


def compile_anew(
    fn: FunctionType, args: tuple[ArgSpec, ...], options: Options, caps: Caps
) -> Compiled:
    """Compile a kernel. Raises CompilationError, DeviceError."""
    compile_kernel, is_watched = _load_compiler()
    made = compile_kernel(fn, args, options, caps)
    return made._replace(may_race=is_watched(fn.__module__, made.func))


# Loaded in another thread: an interrupted import may deadlock Python's import system.


@functools.cache
def _load_cache() -> Callable[..., Compiled]:
    """`manifest.get_or_compile`, loaded for the first kernel: 5 ms."""

    def load() -> Callable[..., Compiled]:
        from vkchi.cache.manifest import get_or_compile

        return get_or_compile

    return run_in_thread(load)


@functools.cache
def _load_compiler() -> tuple[Callable[..., Compiled], Callable[..., bool]]:
    """`compile_kernel` and `is_watched`, loaded for the first compilation: 0.1 s."""

    def load() -> tuple[Callable[..., Compiled], Callable[..., bool]]:
        from vkchi.compiler import compile_kernel, load_compiler
        from vkchi.races.suspects import is_watched

        load_compiler()
        return compile_kernel, is_watched

    return run_in_thread(load)


def runs_as_python(fn: FunctionType) -> bool:
    """True for kernels of users; those of vkchi run on the device in every mode."""
    return (fn.__module__ or "").partition(".")[0] != "vkchi"


@functools.cache
def _load_python_mode() -> Callable[..., CompiledKernel]:
    """`python_mode.python_kernel.make_kernel`, loaded for the first kernel that runs as Python."""

    def load() -> Callable[..., CompiledKernel]:
        from vkchi.python_mode.python_kernel import make_kernel

        return make_kernel

    return run_in_thread(load)


def forget_stale(kernel: weakref.ref[Kernel]) -> None:
    """Call `Kernel.forget_stale` if the kernel is alive.

    Finalizer of the objects that are part of a signature.
    """
    found = kernel()
    if found is not None:
        found.forget_stale()


def renew_compiled(
    kernel: weakref.ref[Kernel], cache: weakref.ref[CallCache], args: tuple[Any, ...]
) -> Accepted:
    """Find or compile the current version of a kernel on the device for a call.

    Raises KernelRuntimeError if the kernel or its call cache is garbage.
    """
    found, known = kernel(), cache()
    if found is None or known is None:
        raise KernelRuntimeError("values that a kernel was compiled with changed, and it is gone")
    return found._compiled_for(known, args, on_device=True)


class BoundKernel(functools.partial[Any]):
    """A kernel bound to an object, which is its first argument."""

    def __repr__(self) -> str:
        return f"{self.func!r} of an object of {type(self.args[0]).__name__}"

    def grad(self, *args: Any, **kwargs: Any) -> None:
        """Run the kernel's gradient for this object, as `Kernel.grad`."""
        self.func.grad(*self.args, *args, **kwargs)  # type: ignore[attr-defined]

    def explain(self, *args: Any, **kwargs: Any) -> None:
        """As `Kernel.explain`, for this object."""
        self.func.explain(*self.args, *args, **kwargs)  # type: ignore[attr-defined]

    def inspect(self, look: Callable[[CompiledKernel, Any], T], *args: Any) -> T:
        """As `Kernel.inspect`, for this object."""
        found: T = self.func.inspect(look, *self.args, *args)  # type: ignore[attr-defined]
        return found

    def dispatch(self, act: Callable[..., Any], *args: Any) -> Any:
        """As `Kernel.dispatch`, for this object."""
        return self.func.dispatch(act, *self.args, *args)  # type: ignore[attr-defined]


def shortened(error: CompilationError) -> CompilationError:
    """The error without its traceback, unless tracebacks are full: its message has the user's line,
    and its cause is an exception of the user's Python code."""
    return error if is_full() else error.with_traceback(None)


def launch_or_record(name: str, kernel: CompiledKernel, args: tuple[Any, ...]) -> Any:
    """Launch a compiled kernel and return its result.

    If a tape or forward mode is active, its `launch` does it, under the runtime's lock.
    """
    lock = kernel.runtime.lock
    was_held = lock._is_owned()  # type: ignore[attr-defined]
    try:  # inlined `locks.restoring`: a debugger would step into it
        with lock:  # a tape may open while this thread waits
            tape = kernel.runtime.tape
            return kernel.launch(args) if tape is None else tape.launch(name, kernel, args)
    except BaseException:
        if not was_held:
            release_wholly(lock)
        raise


def keep_typed_source(fn: FunctionType) -> None:
    """Store the syntax tree of a function from an interactive session or `exec`.

    Its source may be unavailable later. No effect on functions in files.
    """
    if fn.__code__.co_filename.startswith("<"):
        from vkchi.frontend.syntax.source import keep_source  # loaded on demand

        keep_source(fn)


class UserFunc(PickledFunction):
    """A function that kernels inline. A call from Python raises KernelSyntaxError."""

    __vkchi_kind__ = "func"
    requires_top_level = False

    def __init__(self, fn: FunctionType) -> None:
        functools.update_wrapper(self, fn)
        self.__vkchi_func__ = fn
        keep_typed_source(fn)
        if fn.__code__.co_flags & (VARARGS | VARKEYWORDS):
            from vkchi.frontend.calls.inline import check_fixed  # loaded on demand: 0.1 s

            check_fixed(fn)

    def __repr__(self) -> str:
        return show_function(self.__vkchi_kind__, self.__vkchi_func__)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        name = self.__vkchi_func__.__name__
        raise KernelSyntaxError(
            f"{name}() is a ti.func: only kernels can call it; decorate it with ti.pyfunc or "
            "ti.kernel to call it from Python"
        )

    def __get__(self, obj: Any, owner: Any = None) -> Any:
        return self if obj is None else BoundFunc(self, obj)


class BoundFunc:
    """A `UserFunc` bound to an object: kernels pass `__self__` as its first argument."""

    @property
    def __vkchi_kind__(self) -> str:
        return self.__func__.__vkchi_kind__

    def __init__(self, func: UserFunc, obj: Any) -> None:
        self.__func__, self.__self__ = func, obj
        self.__vkchi_func__ = func.__vkchi_func__

    def __reduce__(self) -> Any:
        return BoundFunc, (self.__func__, self.__self__)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__func__(*args, **kwargs)

    def __repr__(self) -> str:
        return f"{self.__func__!r} of an object of {type(self.__self__).__name__}"


class RealFunc(UserFunc):
    """A function with typed arguments and results, which kernels and other functions call.

    Scalars and vectors are passed by value, under `ti.ref` by reference. Its loops are serial.
    Raises KernelSyntaxError for an argument without a type.
    """

    __vkchi_kind__ = "real_func"

    def __init__(self, fn: FunctionType) -> None:
        super().__init__(fn)
        for p in declared_parameters(fn)[looks_like_method(fn) :]:
            if p.annotation is MissingAnnotation:
                raise KernelSyntaxError(
                    f"argument `{p.name}` of real function {fn.__name__}() has no type",
                    span_of_function(fn),
                    help=f"write {p.name}: ti.f32, {p.name}: ti.ref(ti.f32) or a ti.template()",
                )


class PyFunc(UserFunc):
    """A function that kernels inline and Python code can call too."""

    __vkchi_kind__ = "pyfunc"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__vkchi_func__(*args, **kwargs)

    def __get__(self, obj: Any, owner: Any = None) -> Any:
        return self if obj is None else functools.partial(self, obj)


class GraphHooks:
    """Hook for kernels with loops of `ti.graph.do_while`, which are in a higher layer."""

    make = Hook("graph kernel")


def looks_like_method(fn: FunctionType) -> bool:
    """True if the function was defined in a class body, by its qualified name."""
    outer, _, _ = fn.__qualname__.rpartition(".")
    return bool(outer) and not outer.endswith("<locals>")


@overload
def kernel(fn: Callable[..., object], /) -> Kernel: ...
@overload
def kernel(
    *, fastcache: bool = False, graph: bool = False
) -> Callable[[Callable[..., object]], Kernel]: ...
def kernel(
    fn: Callable[..., object] | None = None, *, fastcache: bool = False, graph: bool = False
) -> Kernel | Callable[[Callable[..., object]], Kernel]:
    """Make a kernel of a function: `@ti.kernel`, or `@ti.kernel(...)` with options.

    Its top-level `for` loops run in parallel on the device, unless they are serialized or unrolled.

    Args:
        fn: a plain function, or a method of a class under `@ti.data_oriented`. Its parameters have
            types, such as `ti.f32`, `ti.types.ndarray()` or `ti.template()`.
        fastcache: accepted without effect; the disk cache has all kernels.
        graph: the kernel returns nothing, and may have loops of `ti.graph.do_while`. All
            dispatches of a launch are submitted together in any case.

    Returns:
        The kernel, called like the function. `kernel.grad` runs its gradient.

    Raises:
        KernelSyntaxError: for anything but a plain function, for `*args` and `**kwargs`, and for a
            parameter without a type of kernels (string annotations: at the first call). With
            `graph`, also for a return annotation other than None.
    """

    def make(fn: Callable[..., object]) -> Kernel:
        plain = checked_function(fn, "kernel")
        if graph and plain.__annotations__.get("return") not in (None, "None"):
            raise KernelSyntaxError(
                f"kernel {plain.__name__}() with graph=True has a return type",
                span_of_function(plain),
                help="write the result to an array of one element, or leave graph=True out",
            )
        looping: Kernel | None = GraphHooks.make(plain) if graph else None
        return looping or Kernel(plain)

    return make if fn is None else make(fn)


@overload
def func(fn: Callable[..., object], is_real_function: bool = False) -> UserFunc: ...
@overload
def func(
    *, is_real_function: bool = False, requires_top_level: bool = False
) -> Callable[[Callable[..., object]], UserFunc]: ...
def func(
    fn: Callable[..., object] | None = None, is_real_function: bool = False, *,
    requires_top_level: bool = False,
) -> UserFunc | Callable[[Callable[..., object]], UserFunc]:  # fmt: skip
    """Make a function that kernels and other funcs can call: `@ti.func`, or `@ti.func(...)` with
    options. It is inlined.

    Args:
        fn: a plain function.
        is_real_function: if True, the result is that of `real_func`.
        requires_top_level: if True, a call in a loop or a branch of run time raises
            KernelSyntaxError: the parallel loops of the function would be serial there.

    Returns:
        The function, for kernels and other funcs.

    Raises:
        KernelSyntaxError: for anything but a plain function.
    """

    def make(fn: Callable[..., object]) -> UserFunc:
        if is_real_function:
            return RealFunc(checked_function(fn, "real_func"))
        made = UserFunc(checked_function(fn, "func"))
        made.requires_top_level = requires_top_level
        return made

    return make if fn is None else make(fn)


def real_func(fn: FunctionType) -> RealFunc:
    """Make a function that kernels and funcs can call, and that may call itself at run time.

    It is inlined too, up to a depth, or becomes a loop with a stack (docs/language/functions.md).

    Source: Taichi's `ti.real_func`.

    Args:
        fn: a plain function with typed arguments and results.

    Returns:
        The function, for kernels and other funcs.

    Raises:
        KernelSyntaxError: if an argument has no type.
    """
    return RealFunc(checked_function(fn, "real_func"))


def pyfunc(fn: Callable[..., object]) -> PyFunc:
    """Make a function that both kernels and Python can call.

    Args:
        fn: a plain function.

    Returns:
        The function. In kernels it is a `func`, in Python the plain function.

    Raises:
        KernelSyntaxError: for anything but a plain function.
    """
    return PyFunc(checked_function(fn, "pyfunc"))


def checked_function(fn: Any, what: str) -> FunctionType:
    """Return `fn`, a plain function. Raises KernelSyntaxError for others, with the decorator's name
    `what`."""
    inner = getattr(fn, "__vkchi_func__", fn)
    if inner is not fn or not isinstance(fn, FunctionType):
        raise KernelSyntaxError(
            f"@ti.{what} goes on a plain function, not on {fn!r}",
            span_of_function(inner) if isinstance(inner, FunctionType) else None,
        )
    return fn


@overload
def data_oriented(cls: C, /) -> C: ...
@overload
def data_oriented(
    *, template_primitives: bool = True, stable_members: bool = False
) -> Callable[[C], C]: ...
def data_oriented(
    cls: C | None = None, *, template_primitives: bool = True, stable_members: bool = False
) -> C | Callable[[C], C]:
    """Mark a class as one whose methods may be kernels and funcs: `@ti.data_oriented`, or
    `@ti.data_oriented(...)` with options.

    Source: Taichi's `ti.data_oriented`; Quadrants' options.

    Args:
        cls: the class.
        template_primitives: with False, numbers in its objects are arguments of kernels, which are
            not compiled again when they change. With True, they are compile-time constants, unless
            a base class has False.
        stable_members: accepted without effect; calls read the members of an object quickly.

    Returns:
        The same class; with options, a decorator.
    """

    def mark(cls: C) -> C:
        marked: Any = cls
        marked._data_oriented = True  # Taichi's name, which programs read
        if not template_primitives:
            marked._template_primitives = False
        return cls

    return mark if cls is None else mark(cls)
