"""The types of fields that several declared classes share."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from evalcore.model.measures import LARGEST

Text = Annotated[str, Field(min_length=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Weight = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]
Measure = Annotated[float, Field(ge=0, le=LARGEST)]
