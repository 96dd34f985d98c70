"""Dispatches of few workgroups that follow each other, recorded as one.

To wake a software driver's workers, and to wait for them, takes longer than a small dispatch
computes. So small dispatches are gathered, up to a submission's end or the next command that is
none, and become a list which one workgroup goes through (`target.stretch`). The shader that does so
is linked of theirs (by a hook: what SPIR-V is, is not known here), once they have followed each
other often enough to pay for its compiling. What runs, in which order, and what sees what stays as
it was. It is done for processors; for graphics cards nobody has measured it, so only if asked for.

Owns: which dispatches are gathered, when linking pays, the bytes of a list. Must not know: how
commands are recorded, what dispatches are for.

    if stretches.meet(pipeline, is_small=True): stretches.link(device.load)
    linked, number = pipeline.place
    stretch = Stretch(linked); stretch.add((pipeline, args, (1, 1, 1), reads, writes, number), 64)
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from itertools import product
from math import prod

from vkchi import env
from vkchi.errors import DeviceError
from vkchi.hooks import Hook
from vkchi.target.shader import Shader
from vkchi.target.stretch import ENTRY, HEAD, Link
from vkchi.vk.pipelines import Pipeline, Runnable

MOST_GROUPS = 2  # of a dispatch that one workgroup does alone
MOST_BYTES = 1 << 15  # of a list
# Words of SPIR-V that are compiled in the time that a dispatch less saves: lavapipe takes some 15
# microseconds for a word, and 12 of processor time, or 40 by the clock, for a small dispatch.
WORDS_PER_DISPATCH = 2.0
OFTEN = 64  # of the dispatches that were met, one in so many is of a shader that is linked
LOOK_AGAIN = 64  # dispatches after which it is asked again whether linking is worth while
ALIGNMENT = 8

Groups = tuple[int, int, int]
ONE: Groups = 1, 1, 1


class Linked:
    """A shader that runs lists, loaded; of each member, whether it uses the workgroup's memory."""

    def __init__(self, pipeline: Pipeline, shares: tuple[bool, ...]) -> None:
        self.pipeline, self.shares = pipeline, shares


# One that was gathered: what it would be by itself, keys of what it reads and writes, the number of
# its shader in the linked one.
Gathered = tuple[Pipeline, bytes, Groups, frozenset[int], frozenset[int], int]


class Stretch:
    """Dispatches that are to be recorded as one. What they touch is noted before they are appended,
    and forgotten after: an exception in between costs a wait. `sent` is not empty once it is
    recorded."""

    def __init__(self, linked: Linked) -> None:
        self.linked = linked
        self.dispatches: list[tuple[Gathered, bool]] = []  # and whether to wait before
        self.sent: list[object] = []
        self.size_bytes = HEAD.size
        self._since: tuple[set[int], set[int]] = set(), set()  # read and written since a wait

    def takes(self, linked: Linked, size_bytes: int) -> bool:
        """Whether another dispatch may follow in the same list."""
        has_room = self.size_bytes + size_bytes <= MOST_BYTES
        return has_room and linked is self.linked and not self.sent

    def add(self, dispatch: Gathered, size_bytes: int) -> None:
        """Another dispatch, which takes so many bytes of the list."""
        _, _, _, reads, writes, _ = dispatch
        read, written = self._since
        is_apart = written.isdisjoint
        wait = not (is_apart(reads) and is_apart(writes) and read.isdisjoint(writes))
        read |= reads
        written |= writes
        self.size_bytes += size_bytes
        self.dispatches.append((dispatch, wait))
        if wait:
            self._since = set(reads), set(writes)

    def touched(self) -> tuple[frozenset[int], frozenset[int]]:
        """Keys of all that they read and write."""
        nothing: frozenset[int] = frozenset()
        all_ = [d for d, _ in self.dispatches]
        return nothing.union(*[d[3] for d in all_]), nothing.union(*[d[4] for d in all_])

    def pack(self, address: int) -> bytes:
        """The list, for it to stand at an address. Workgroups of one dispatch wait for each other
        where they use the same memory."""
        entries: list[bytes] = []
        blocks: list[bytes] = []
        shares, pack = self.linked.shares, ENTRY.pack
        count = sum([prod(d[2]) for d, _ in self.dispatches])
        at = address + HEAD.size + count * ENTRY.size
        for (_, args, groups, _, _, number), wait in self.dispatches:
            must_wait = shares[number]
            if groups == ONE:
                entries.append(pack(number, wait or must_wait, at, 0, 0, 0, 1, 1, 1))
            else:
                for k, (c, b, a) in enumerate(product(*map(range, groups[::-1]))):
                    waits = must_wait or (wait and not k)
                    entries.append(pack(number, waits, at, a, b, c, *groups))
            blocks.append(args)
            at += len(args)
            if len(args) % ALIGNMENT:
                blocks.append(bytes(-len(args) % ALIGNMENT))
                at += len(blocks[-1])
        return b"".join((HEAD.pack(count, 0), *entries, *blocks))


def size_of(args_bytes: int, groups: int) -> int:
    """The bytes of a dispatch in a list."""
    return groups * ENTRY.size + args_bytes + -args_bytes % ALIGNMENT


class Stretches:
    """What a device has met of small dispatches. Counts need not be right, and are not after an
    exception. is_eager: link at once."""

    link_shaders = Hook("link shaders")

    def __init__(self, *, is_eager: bool) -> None:
        self._worth = float("inf") if is_eager else WORDS_PER_DISPATCH
        self._known: list[weakref.ref[Pipeline]] = []
        self._met = 0  # since shaders were linked
        self._next = 1.0  # how many make it worth while to look again
        self.is_following = False  # what is recorded next, a small dispatch

    def meet(self, pipeline: Runnable, *, is_small: bool) -> bool:
        """Take note of a dispatch that is recorded by itself; whether so many were met that it may
        be worth while to link them."""
        if is_small and self.is_following and isinstance(pipeline, Pipeline):
            if not pipeline.met:
                self._known.append(weakref.ref(pipeline))
            pipeline.met += 1
            self._met += not pipeline.is_alone
        self.is_following = is_small
        return self._met >= self._next

    def link(self, load: Callable[[Shader], Pipeline]) -> None:
        """Link what was met often with what is linked, if that is worth its compiling."""
        known = [p for p in (found() for found in self._known) if p is not None]
        self._known = [weakref.ref(p) for p in known]
        often = self._met / OFTEN
        chosen = [p for p in known if not p.is_alone and (p.place or p.met >= often)]
        words = sum(len(p.shader.words) for p in chosen) // 4
        is_worth = self._met >= words / self._worth and any(not p.place for p in chosen)
        if is_worth:
            self._met, self._next = 0, 1.0
            take_over(chosen, self.link_shaders([p.shader for p in chosen]), load)
        else:
            self._next = max(words / self._worth, self._met + LOOK_AGAIN)


def take_over(
    chosen: list[Pipeline], link: Link | None, load: Callable[[Shader], Pipeline]
) -> None:
    """Let a linked shader run those that it is made of; all others stay as they are."""
    places: dict[int, tuple[Linked, int]] = {}
    if link is not None:
        try:
            linked = Linked(load(link.shader), link.shares)
            places = {k: (linked, number) for number, k in enumerate(link.members)}
        except DeviceError:  # the driver refuses it
            pass
    for k, pipeline in enumerate(chosen):
        pipeline.place = places.get(k, pipeline.place)
        pipeline.is_alone = pipeline.place is None


def stretches_for(kind: str) -> Stretches | None:
    """What gathers small dispatches on a device of this kind; None where they stay alone."""
    wanted = env.flag("VKCHI_STRETCHES")
    if wanted == "0" or (wanted != "first" and kind != "cpu"):
        return None
    return Stretches(is_eager=wanted == "first")
