"""Images → filtered images → statistics, from the first row to a plot.

    python examples/pipeline/tutorial.py

It keeps its tables in ./penstock.db, or wherever PENSTOCK_DATABASE_URL says, and writes pipeline.svg and plot.svg.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from lab import FilteredImage, Image, Method, Statistics, Subject, schema

import penstock.pipeline as dj


def main() -> None:
    insert_images()
    print(Image())

    print("\nUrgent subjects first: a lower number is more urgent.")
    print(FilteredImage.jobs.refresh(Subject & 'priority = "urgent"', priority=0))
    print(FilteredImage.jobs.refresh())
    print(FilteredImage.populate(reserve_jobs=True, suppress_errors=True, processes=2)["success_count"], "made")

    print("\nOne image was bad. The job table knows which, and why:")
    for error in FilteredImage.jobs.errors.fetch(as_dict=True):
        key = {name: error[name] for name in FilteredImage.jobs.primary_key}
        print(f"  {key}: {error['error_message']}")
        print(f"  why: {FilteredImage.jobs.why(key)}")

    print("\nMend the image, clear the errors, and run again:")
    bad = {"subject_id": 2, "image_id": 3}
    Image.update1({**bad, "image": np.nan_to_num((Image & bad).fetch1("image"))})
    FilteredImage.jobs.errors.delete()
    print(FilteredImage.populate(reserve_jobs=True)["success_count"], "made")
    print(len(FilteredImage.jobs.history()), "errors stay in the history")

    Statistics.populate(reserve_jobs=True)
    print("\n" + dj.Diagram(schema).text())
    dj.Diagram(schema).save("pipeline.svg")

    contrast = Method.aggr(Statistics, images="count(*)", contrast="avg(contrast)")
    print("\n" + repr(contrast))
    Path("plot.svg").write_text(plot(Statistics.to_dicts(order_by="KEY")), encoding="utf-8")
    print("\nWrote pipeline.svg and plot.svg.")


def insert_images() -> None:
    """Three subjects with four images each; one image has a dead pixel."""
    noise = np.random.default_rng(2026)
    Subject.insert([(1, "normal"), (2, "normal"), (3, "urgent")], skip_duplicates=True)
    for subject in (1, 2, 3):
        for number in (1, 2, 3, 4):
            image = noise.normal(loc=subject, scale=0.3, size=(16, 24))
            if (subject, number) == (2, 3):
                image[5, 5] = np.nan
            Image.insert1({"subject_id": subject, "image_id": number, "image": image}, skip_duplicates=True)


def plot(rows: list[dict[str, Any]]) -> str:
    """Mean against contrast, one dot for each result, one colour for each method."""
    colours = {"smooth": "#1f77b4", "smoother": "#d62728"}
    right, top = max(row["mean"] for row in rows) * 1.1, max(row["contrast"] for row in rows) * 1.1
    dots = [
        f'<circle cx="{50 + 380 * row["mean"] / right:.1f}" cy="{260 - 220 * row["contrast"] / top:.1f}" r="5" '
        f'fill="{colours[row["method"]]}"><title>subject {row["subject_id"]}, image {row["image_id"]}</title></circle>'
        for row in rows
    ]
    names = [
        f'<text x="70" y="{40 + 16 * number}" font-size="12" fill="{colour}">{name}</text>'
        for number, (name, colour) in enumerate(colours.items())
    ]
    axes = (
        '<path d="M50 20 V260 H440" fill="none" stroke="#333"/><text x="240" y="290" font-size="12">mean</text>'
        '<text x="14" y="150" font-size="12" transform="rotate(-90 14 150)">contrast</text>'
    )
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 460 300" width="460" height="300" '
        f'font-family="system-ui, sans-serif">{axes}{"".join(names)}{"".join(dots)}</svg>\n'
    )


if __name__ == "__main__":
    main()
