"""The pipeline that most tests use: subjects have images, and each image is filtered."""

from __future__ import annotations

from typing import Any

import penstock.pipeline as dj


class Lab:
    """Subject, Image, FilteredImage, declared on a schema."""

    def __init__(self, schema: dj.Schema) -> None:
        self.schema = schema
        self.calls: list[dict[str, Any]] = []
        self.broken: set[int] = set()
        lab = self

        @schema
        class Subject(dj.Manual):
            definition = """
            # whom we study
            subject_id : int
            ---
            priority = "normal" : enum('urgent', 'normal')
            lab = "smith" : varchar(32)
            """

        @schema
        class Image(dj.Manual):
            definition = """
            -> Subject
            image_id : int
            ---
            image : <djblob>
            """

        @schema
        class FilteredImage(dj.Computed):
            definition = """
            -> Image
            ---
            filtered_image : <djblob>
            """

            def make(self, key: dict[str, Any], **options: Any) -> None:
                lab.calls.append(key)
                image = (Image & key).fetch1("image")
                if key["subject_id"] in lab.broken:
                    raise ValueError(f"subject {key['subject_id']} moved")
                self.insert1({**key, "filtered_image": [pixel * 2 for pixel in image]})

        self.Subject, self.Image, self.FilteredImage = Subject, Image, FilteredImage

    def fill(self, subjects: int = 3, images: int = 2) -> None:
        self.Subject.insert(
            {"subject_id": s, "priority": "urgent" if s == 1 else "normal"} for s in range(1, subjects + 1)
        )
        self.Image.insert(
            {"subject_id": s, "image_id": i, "image": [s, i]}
            for s in range(1, subjects + 1)
            for i in range(1, images + 1)
        )

    def key(self, subject: int, image: int = 1) -> dict[str, int]:
        return {"subject_id": subject, "image_id": image}
