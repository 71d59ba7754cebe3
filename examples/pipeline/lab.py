"""The tables of the tutorial: images → filtered images → statistics."""

from __future__ import annotations

from typing import Any

import numpy as np

import penstock.pipeline as dj

schema = dj.Schema("tutorial")


@schema
class Subject(dj.Manual):
    definition = """
    # whom we study
    subject_id : int
    ---
    priority = "normal" : enum('urgent', 'normal')
    """


@schema
class Image(dj.Manual):
    definition = """
    # one picture of a subject
    -> Subject
    image_id : int
    ---
    image : <blob>          # a 2-d array
    taken = CURRENT_TIMESTAMP : timestamp
    """


@schema
class Method(dj.Lookup):
    definition = """
    # ways to filter
    method : varchar(16)
    ---
    width : uint8           # of the window, in pixels
    """
    contents = (("smooth", 3), ("smoother", 7))


@schema
class FilteredImage(dj.Computed):
    definition = """
    # each image, filtered by each method
    -> Image
    -> Method
    ---
    filtered_image : <blob>
    """

    class Row(dj.Part):
        definition = """
        # the brightest pixel of each row
        -> master
        row : uint16
        ---
        brightest : float
        """

    def make(self, key: dict[str, Any]) -> None:
        image = (Image & key).fetch1("image")
        width = (Method & key).fetch1("width")
        if not np.isfinite(image).all():
            raise ValueError("the image has dead pixels")
        filtered = smooth(image, width)
        self.insert1({**key, "filtered_image": filtered})
        self.Row.insert({**key, "row": row, "brightest": float(line.max())} for row, line in enumerate(filtered))


@schema
class Statistics(dj.Computed):
    definition = """
    # what we publish
    -> FilteredImage
    ---
    mean : float
    contrast : float
    """

    def make_fetch(self, key: dict[str, Any]) -> Any:
        return ((FilteredImage & key).fetch1("filtered_image"),)

    def make_compute(self, key: dict[str, Any], image: Any) -> Any:
        return float(image.mean()), float(image.max() - image.min())

    def make_insert(self, key: dict[str, Any], mean: float, contrast: float) -> None:
        self.insert1({**key, "mean": mean, "contrast": contrast})


def smooth(image: Any, width: int) -> Any:
    """A running mean along each row."""
    window = np.ones(width) / width
    return np.apply_along_axis(lambda line: np.convolve(line, window, mode="same"), 1, image)
