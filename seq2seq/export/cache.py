"""Models that were exported to CTranslate2 before, by their content."""

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import asdict

import torch

from seq2seq.errors import UserError
from seq2seq.export.ctranslate2 import ctranslate2_files
from seq2seq.storage.atomic import write_folder
from seq2seq.storage.manifest import read_folder, read_manifest
from seq2seq.storage.trained_model import TrainedModel
from seq2seq.storage.user_cache import private_cache

logger = logging.getLogger("seq2seq")

_FORMAT = "1"  # of the export; another one makes the models anew


def cached_ctranslate2(trained: TrainedModel) -> Mapping[str, bytes]:
    """Return the files of a model for CTranslate2, from the user's cache or made now.

    What is damaged in the cache is made anew. If the cache can't be used, that is logged.

    Raises:
        UserError: if CTranslate2 is not installed or can't express the model.
    """
    try:
        folder = private_cache("ctranslate2") / content_key(trained)
    except UserError as error:
        logger.warning(f"seq2seq: {error}; the model is exported at each start")
        return ctranslate2_files(trained)
    if folder.is_dir():
        try:
            return read_folder(folder, read_manifest(folder))
        except UserError as error:
            logger.warning(f"seq2seq: {error}; it is made anew")
    files = ctranslate2_files(trained)
    try:
        write_folder(folder, files)
    except UserError as error:
        logger.warning(f"seq2seq: {error}; the model is exported at each start")
    return files


def content_key(trained: TrainedModel) -> str:
    """Compute the name of a model in the cache: equal for equal content, wherever it is stored."""
    from ctranslate2 import __version__

    digest = hashlib.sha256()
    config = json.dumps(asdict(trained.model.config), default=str, sort_keys=True)
    parts: list[tuple[str, bytes]] = [
        ("versions", f"{_FORMAT} {__version__}".encode()),
        ("config", config.encode()),
        *sorted(trained.tokenizer.files().items()),
    ]
    for name, value in trained.model.state_dict().items():
        content = value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
        parts.append((f"{name} {value.dtype} {tuple(value.shape)}", content.data))
    for name, content in parts:
        digest.update(f"{name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()
