"""Widgets in the upper left of a window: labels, sliders, buttons.

panel = Panel((640, 480)); radius = panel.add(Slider("radius", 1, 50, 1))
"""

from __future__ import annotations

from typing import Any

from vkchi.errors import ToolError
from vkchi.gui import events as e
from vkchi.gui import shape_arrays
from vkchi.gui.paint import PixelCanvas
from vkchi.gui.pixels import draw_text
from vkchi.gui.shape_arrays import Resolution
from vkchi.types.lazy_numpy import np

WIDTH, ROW, GAP, FONT = 160, 24, 4, 14.0  # pixels
BACK, FILLED, FRAME, INK = 0x303840, 0x3D6E8F, 0x8899AA, 0xFFFFFF
Box = tuple[int, int, int, int]  # left, right, low, high


class Label:
    """Widget with a name and a number; base class of the others."""

    def __init__(self, text: str) -> None:
        self.text, self.value = text, 0.0

    @property
    def caption(self) -> str:
        """Displayed string."""
        return f"{self.text}: {self.value:.4g}"

    @property
    def filled(self) -> float:
        """Filled fraction of the width, from 0 to 1."""
        return 0.0

    def press(self, part: float, inbox: e.EventQueue) -> None:
        """Handle a press at this fraction of the width. No effect on labels."""

    def drag(self, part: float) -> None:
        """Handle a drag to this fraction of the width. No effect on labels."""

    def release(self, inbox: e.EventQueue) -> None:
        """Handle the release of the mouse button. No effect on labels."""


class Slider(Label):
    """Widget with a number in a range, changed by the mouse in steps.

    Raises ToolError for an empty range or a step that is not positive.
    """

    def __init__(self, text: str, minimum: float, maximum: float, step: float) -> None:
        if not (minimum < maximum and step > 0):
            raise ToolError(
                "slider: minimum must be less than maximum, and step positive: got minimum "
                f"{minimum}, maximum {maximum}, step {step}"
            )
        self.text, self.value = text, float(minimum)
        self.minimum, self.maximum, self.step = minimum, maximum, step

    @property
    def filled(self) -> float:
        span = self.maximum - self.minimum
        return float(np.clip((self.value - self.minimum) / span, 0, 1))

    def press(self, part: float, inbox: e.EventQueue) -> None:
        self.drag(part)

    def drag(self, part: float) -> None:
        steps = round(np.clip(part, 0, 1) * (self.maximum - self.minimum) / self.step)
        self.value = float(min(self.minimum + steps * self.step, self.maximum))


class Button(Label):
    """Widget that puts events with its own key: press and release."""

    def __init__(self, text: str, key: str) -> None:
        self.text, self.key, self.value = text, key, 0.0

    @property
    def caption(self) -> str:
        return self.text

    @property
    def filled(self) -> float:
        return self.value

    def press(self, part: float, inbox: e.EventQueue) -> None:
        self.value = 1.0
        inbox.put(e.EType.PRESS, self.key)

    def release(self, inbox: e.EventQueue) -> None:
        self.value = 0.0
        inbox.put(e.EType.RELEASE, self.key)


class Panel:
    """The widgets of a window, stacked from the top."""

    def __init__(self, res: Resolution) -> None:
        self.res = res
        self.widgets: list[Label] = []
        self.held: Label | None = None

    def add(self, widget: Any) -> Any:
        self.widgets.append(widget)
        return widget

    def box(self, number: int) -> Box:
        """Bounding box of the widget with this number, from 0 at the top, in pixels."""
        high = self.res[1] - GAP - number * (ROW + GAP)
        return GAP, GAP + WIDTH, high - ROW, high

    def take(self, event: e.Event, inbox: e.EventQueue) -> None:
        """Pass a press or release of the left button, or a drag, to the widget under it or held."""
        if event.pos is None:
            return
        x, y = (part * size for part, size in zip(event.pos, self.res))
        part = (x - GAP) / WIDTH
        if event.type is e.EType.MOTION and self.held is not None:
            self.held.drag(part)
        elif event.key != e.LMB:
            return
        elif event.type is e.EType.RELEASE and self.held is not None:
            held, self.held = self.held, None
            held.release(inbox)
        elif event.type is e.EType.PRESS:
            for number, widget in enumerate(self.widgets):
                left, right, low, high = self.box(number)
                if left <= x < right and low <= y < high:
                    self.held = widget
                    widget.press(part, inbox)

    def draw(self, canvas: PixelCanvas) -> None:
        """Paint all widgets."""
        for number, widget in enumerate(self.widgets):
            left, right, low, high = self.box(number)
            fill(canvas, (left, right, low, high), FRAME)
            fill(canvas, (left + 1, right - 1, low + 1, high - 1), BACK)
            end = left + 1 + round(widget.filled * (WIDTH - 2))
            fill(canvas, (left + 1, end, low + 1, high - 1), FILLED)
            mask, height = draw_text(widget.caption, FONT)
            canvas.stamp(mask[: WIDTH - 8], left + 4, low + (ROW - height) // 2, INK)


def fill(canvas: PixelCanvas, box: Box, colour: int) -> None:
    """Paint a rectangle as two triangles."""
    left, right, low, high = box
    corners = np.array([[left, low], [right, low], [right, high], [left, high]], np.float32)
    a, b, c = corners[[0, 0]], corners[[1, 2]], corners[[2, 3]]
    canvas.add(shape_arrays.triangles(a, b, c, np.full(2, colour, np.uint32)))
