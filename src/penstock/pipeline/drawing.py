"""Three ways to draw layers of boxes and the lines between them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

COLOURS = {
    "manual": "#d9ead3", "lookup": "#eeeeee", "imported": "#cfe2f3", "computed": "#f4cccc", "part": "#ffffff",
}  # fmt: skip
BOX_HEIGHT, GAP_X, GAP_Y, CHAR = 44, 28, 56, 7.4


@dataclass(frozen=True, slots=True)
class Node:
    """A table, its number of rows, and its jobs by status."""

    id: str
    label: str
    tier: str
    rows: int
    jobs: Mapping[str, int] = field(default_factory=dict)

    @property
    def counts(self) -> str:
        shown = [f"{self.rows} row{'' if self.rows == 1 else 's'}"]
        return ", ".join(shown + [f"{number} {status}" for status, number in self.jobs.items()])


@dataclass(frozen=True, slots=True)
class Edge:
    """From parent to child; solid if the child's key depends on it."""

    parent: str
    child: str
    in_key: bool


def as_text(layers: Sequence[Sequence[Node]], edges: Sequence[Edge]) -> str:
    names = {node.id: node.label for layer in layers for node in layer}
    lines = []
    for depth, layer in enumerate(layers):
        for node in layer:
            parents = [names[edge.parent] for edge in edges if edge.child == node.id]
            origin = f"  <- {', '.join(parents)}" if parents else ""
            lines.append(f"{'  ' * depth}{node.label} [{node.tier}] {node.counts}{origin}")
    return "\n".join(lines) or "(no tables)"


def as_mermaid(layers: Sequence[Sequence[Node]], edges: Sequence[Edge]) -> str:
    lines = ["flowchart TD"]
    for node in (node for layer in layers for node in layer):
        lines.append(f'    {_word(node.id)}["{node.label}<br/>{node.counts}"]:::{node.tier}')
    lines += [f"    {_word(edge.parent)} {'-->' if edge.in_key else '-.->'} {_word(edge.child)}" for edge in edges]
    lines += [f"    classDef {tier} fill:{colour},stroke:#555,color:#111" for tier, colour in COLOURS.items()]
    return "\n".join(lines) + "\n"


def as_svg(layers: Sequence[Sequence[Node]], edges: Sequence[Edge]) -> str:
    boxes, width, height = _placed(layers)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" font-family="system-ui, sans-serif" role="img" aria-label="Pipeline">'
    ]
    for edge in edges:
        parent, child = boxes[edge.parent], boxes[edge.child]
        dash = "" if edge.in_key else ' stroke-dasharray="5 4"'
        parts.append(
            f'<line x1="{parent[0] + parent[2] / 2:.1f}" y1="{parent[1] + BOX_HEIGHT}" '
            f'x2="{child[0] + child[2] / 2:.1f}" y2="{child[1]}" stroke="#777" stroke-width="1.4"{dash}/>'
        )
    for node in (node for layer in layers for node in layer):
        x, y, wide = boxes[node.id]
        edge_colour = "#c00" if node.jobs.get("error") else "#555"
        parts.append(
            f'<g><rect x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{BOX_HEIGHT}" rx="6" fill="{COLOURS[node.tier]}" '
            f'stroke="{edge_colour}"/><text x="{x + wide / 2:.1f}" y="{y + 18:.1f}" text-anchor="middle" font-size="13" '
            f'fill="#111">{escape(node.label)}</text><text x="{x + wide / 2:.1f}" y="{y + 35:.1f}" text-anchor="middle" '
            f'font-size="11" fill="#444">{escape(node.counts)}</text></g>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _placed(layers: Sequence[Sequence[Node]]) -> tuple[dict[str, tuple[float, float, float]], float, float]:
    """Each box's left, top and width: layers from top to bottom, each centred."""
    wide = {node.id: max(len(node.label), len(node.counts)) * CHAR + 24 for layer in layers for node in layer}
    spans = [sum(wide[node.id] for node in layer) + GAP_X * (len(layer) - 1) for layer in layers]
    total = max(spans, default=0) + 2 * GAP_X
    boxes: dict[str, tuple[float, float, float]] = {}
    for depth, (layer, span) in enumerate(zip(layers, spans, strict=True)):
        x = (total - span) / 2
        for node in layer:
            boxes[node.id] = (x, 16 + depth * (BOX_HEIGHT + GAP_Y), wide[node.id])
            x += wide[node.id] + GAP_X
    return boxes, total, 32 + len(layers) * BOX_HEIGHT + max(0, len(layers) - 1) * GAP_Y


def _word(name: str) -> str:
    """A name that mermaid takes; tiers of one name must not meet."""
    return re.sub(r"[^A-Za-z0-9_]", lambda found: f"_{ord(found[0]):x}_", name)
