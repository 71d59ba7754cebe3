"""A bar chart as SVG, readable on a light page and on a dark one."""

from __future__ import annotations

from html import escape

WIDTH, LEFT, RIGHT, BAR, GAP, TOP = 760, 190, 90, 22, 8, 44


def plot(title: str, values: dict[str, float]) -> str:
    """One bar per name, the longest first; ours stand out."""
    ordered = sorted(values.items(), key=lambda item: -item[1])
    most = max(values.values(), default=1.0)
    height = TOP + len(ordered) * (BAR + GAP) + GAP
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" font-family="system-ui, sans-serif" font-size="13">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{height}" rx="6" fill="#ffffff"/>',
        f'<text x="{GAP * 2}" y="26" font-size="15" font-weight="600" fill="#1a2733">{escape(title)}</text>',
    ]
    for number, (name, value) in enumerate(ordered):
        y = TOP + number * (BAR + GAP)
        width = max(1.0, (WIDTH - LEFT - RIGHT) * value / most)
        color = "#1f6feb" if name.startswith("penstock") else "#9fb1c1"
        middle = y + BAR * 0.7
        lines.append(f'<text x="{LEFT - 8}" y="{middle:.0f}" text-anchor="end" fill="#1a2733">{escape(name)}</text>')
        lines.append(f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR}" rx="3" fill="{color}"/>')
        lines.append(f'<text x="{LEFT + width + 6:.1f}" y="{middle:.0f}" fill="#1a2733">{value:,.0f}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"
