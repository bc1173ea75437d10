"""Reads the small files of a model, which may hold anything, within a limit of size."""

import json
import os

from .failures import Failure


def read_model_text(folder: str, name: str, model: str, max_bytes: int) -> str | None:
    """The text of a file in the model's folder; None without the file. Raises Failure("model")."""
    path = os.path.join(folder, name)
    try:
        if os.path.getsize(path) > max_bytes:
            raise ValueError(f"it is larger than {max_bytes} bytes")
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise unreadable(name, model, error) from error


def read_model_json(folder: str, name: str, model: str, max_bytes: int) -> dict:
    """The JSON object in a file of the model's folder; empty without the file. Raises Failure("model")."""
    text = read_model_text(folder, name, model, max_bytes)
    try:
        value = {} if text is None else json.loads(text)
        if not isinstance(value, dict):
            raise ValueError("it is not a JSON object")
    except (ValueError, RecursionError) as error:
        raise unreadable(name, model, error) from error
    return value


def unreadable(name: str, model: str, cause: Exception | str) -> Failure:
    """The failure of a model whose file `name` cannot be used."""
    return Failure("model", f"Failed to read {name} of {model}: {str(cause)[:300]}; copy the model again")
