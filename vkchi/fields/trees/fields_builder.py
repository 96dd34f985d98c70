"""Roots of field trees: `ti.root`, and `ti.FieldsBuilder` for trees that can be freed.

fb = FieldsBuilder(); fb.dense(ti.i, 8).place(x)
tree = fb.finalize(); ...; tree.destroy()
"""

from __future__ import annotations

from typing import Any

from vkchi.errors import KernelRuntimeError
from vkchi.fields.trees.snode import FieldTree, ParentNode, RootNode, SNode
from vkchi.interrupts.contexts import restoring
from vkchi.interrupts.weak import WeakGroup
from vkchi.logs import logger
from vkchi.runtime import Runtime, current_runtime


class GlobalRoot(RootNode):
    """The root of a runtime. `made`: live fields created with a shape. `grown`: live top-level
    nodes created by `ti.root` or by a builder."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime, root, is_ready=True)
        self.made: WeakGroup[Any] = WeakGroup()
        self.grown: WeakGroup[SNode] = WeakGroup()

    def adopt(self, kind: str, cells: tuple[tuple[int, int], ...] = ()) -> SNode:
        node = super().adopt(kind, cells)
        self.grown.add(node)
        return node

    def deactivate_all(self) -> None:
        for node in list(self.grown):
            if not node.tree.is_destroyed:
                node.deactivate_all()

    def place_companions(self, kind: str) -> None:
        super().place_companions(kind)
        for field in list(self.made):
            companion = field.lacking(kind)
            if companion is not None:
                self._copy_place(field.node, companion)

    def _copy_place(self, node: SNode, field: Any) -> None:
        """Place `field` in new dense blocks with the sizes of the blocks above `node`, and with its
        offset."""
        path = [n for n in node._path_from_root() if isinstance(n, SNode)][:-1]
        parent: ParentNode = self
        for block in path:
            parent = parent.adopt("dense", block.cells)
        field.is_soa = node.content is not None and node.content.is_soa
        parent.place(field, offset=node.origin or None)


def root_of(runtime: Runtime) -> GlobalRoot:
    """The root of a runtime, created on first use."""
    if runtime.root is None:
        with restoring(runtime.lock), runtime.lock:  # two threads may race to create it
            runtime.root = runtime.root or GlobalRoot(runtime)
    return runtime.root


class ShownRoot(ParentNode):
    """Base of the roots that users see: without axes and parent."""

    kind = "root"

    @property
    def shape(self) -> tuple[int, ...]:
        return ()

    def parent(self, n: int = 1) -> None:
        """Always None."""

    def __repr__(self) -> str:
        return "ti.root"


class CurrentRoot(ShownRoot):
    """`ti.root`: the root of the current runtime."""

    @property
    def runtime(self) -> Runtime:  # type: ignore[override]
        return current_runtime()

    @property
    def extents(self) -> dict[int, int]:  # type: ignore[override]
        return {}

    @property
    def children(self) -> list[SNode]:  # type: ignore[override]
        """Top-level nodes whose trees have no memory yet."""
        return root_of(current_runtime()).children

    def adopt(self, kind: str, cells: tuple[tuple[int, int], ...] = ()) -> SNode:
        return root_of(current_runtime()).adopt(kind, cells)

    def place(self, *args: Any, offset: Any = None) -> None:
        """Place fields of one element each (args) at the top level.

        `offset` must be None or empty: there is no axis. Raises the errors of `ParentNode.place`.
        """
        super().place(*args, offset=offset)

    def place_companions(self, kind: str) -> None:
        root_of(current_runtime()).place_companions(kind)

    def deactivate_all(self) -> None:
        root_of(current_runtime()).deactivate_all()

    def _get_children(self) -> list[SNode]:
        return self.children


root = CurrentRoot()


class FieldsBuilder(ShownRoot):
    """Builder of field trees that can be destroyed. Their fields are usable after `finalize`."""

    def __init__(self) -> None:
        self.runtime = current_runtime()
        self.root = RootNode(self.runtime, self, is_ready=False, can_destroy=True)
        self.extents = {}
        self.finalized = False
        self.laid_out: list[FieldTree] = []

    @property
    def children(self) -> list[SNode]:  # type: ignore[override]
        """Top-level nodes, until `finalize`."""
        return self.root.children

    def adopt(self, kind: str, cells: tuple[tuple[int, int], ...] = ()) -> SNode:
        self._check_not_finalized()
        node = self.root.adopt(kind, cells)
        root_of(self.runtime).grown.add(node)
        return node

    def deactivate_all(self) -> None:
        """Deactivate all cells of sparse blocks and zero their contents. No effect before
        `finalize`."""
        for tree in self.laid_out:
            tree.top.deactivate_all()

    def place(self, *args: Any, offset: Any = None) -> None:
        """Place fields of one element each (args) at the top level.

        `offset` must be None or empty: there is no axis. Raises the errors of `ParentNode.place`,
        and KernelRuntimeError after `finalize`.
        """
        self._check_not_finalized()
        super().place(*args, offset=offset)

    def place_companions(self, kind: str) -> None:
        self._check_not_finalized()
        super().place_companions(kind)

    def finalize(self, raise_warning: bool = True) -> SNodeTree:
        """Allocate the fields' memory; nothing can be added afterwards. Returns an SNodeTree.
        `raise_warning`: log a warning if the builder is empty. Raises KernelRuntimeError on a
        second call."""
        self._check_not_finalized()
        if not self.root.trees and raise_warning:
            logger().warning("a FieldsBuilder without fields is finalized")
        self.finalized = self.root.is_ready = True
        trees = []
        while self.root.trees:  # `lay_out` may place gradients in new trees
            trees.append(self.root.trees[0])
            trees[-1].lay_out()
        self.laid_out = trees
        return SNodeTree(trees)

    def _check_not_finalized(self) -> None:
        if self.finalized:
            raise KernelRuntimeError(
                "this ti.FieldsBuilder is finalized already: make another one for more fields"
            )


class SNodeTree:
    """The trees that a FieldsBuilder built, as one object that can be destroyed."""

    def __init__(self, trees: list[FieldTree]) -> None:
        self._trees, self.destroyed = trees, False

    def destroy(self) -> None:
        """Free the fields' memory. Later uses of the fields, and a second `destroy`, raise
        KernelRuntimeError."""
        if self.destroyed:
            raise KernelRuntimeError("this tree has been destroyed already")
        self.destroyed = True
        for tree in self._trees:
            tree.destroy()

    @property
    def id(self) -> int:
        """A number unique among live objects. Raises KernelRuntimeError after `destroy`."""
        if self.destroyed:
            raise KernelRuntimeError("this tree has been destroyed")
        return id(self)


def deactivate_all_snodes() -> None:
    """Deactivate the cells of all sparse blocks of the current runtime, builders' included, and
    zero their contents."""
    root.deactivate_all()
