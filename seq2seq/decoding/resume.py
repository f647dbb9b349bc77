"""A translation that continues where an earlier process was killed.

Next to the output NAME, `NAME.resume.part` has the translations so far, not compressed, and
`NAME.resume.json` says what made them and how far they go: to the end of a chunk.
"""

import hashlib
import json
import logging
import os
import shutil
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from seq2seq import __version__, files, system
from seq2seq.changes import MODEL, digest_of_classes, digests_of_edits
from seq2seq.decoding.many import Chunk, ChunkOutput
from seq2seq.decoding.options import TranslationOptions
from seq2seq.decoding.translation import OutputWarnings
from seq2seq.decoding.translator import Translator
from seq2seq.errors import UserError
from seq2seq.model_folder import find_model
from seq2seq.text import COMPRESSIONS, create_binary, open_binary

logger = logging.getLogger("seq2seq")

_MAX_BYTES = 1 << 20
_BLOCK_BYTES = 1 << 20


@dataclass
class PartState:
    """The state of a part: what it holds, and what made it."""

    made_by: dict[str, Any]
    lines: int = 0
    bytes: int = 0
    source_sha256: str = ""
    """The SHA-256 of the lines that were translated."""
    part_sha256: str = ""
    """The SHA-256 of the bytes that were written."""
    warnings: OutputWarnings = field(default_factory=OutputWarnings)


class ResumableOutput:
    """The part of an output, open for what comes next."""

    def __init__(self, part: Path, file: BinaryIO, progress: PartState) -> None:
        self.part, self.file, self.progress = part, file, progress
        self._read: deque[tuple[int, str]] = deque()
        """For each chunk not written yet, the lines up to its end: their number and SHA-256."""
        if os.fstat(file.fileno()).st_size < progress.bytes:
            raise UserError(f"{part}: is shorter than it was; remove it to begin again")
        self._digest = _sha256_of(file, progress.bytes)
        if progress.bytes and self._digest.hexdigest() != progress.part_sha256:
            raise UserError(f"{part}: is not what was written; remove it to begin again")
        file.truncate(progress.bytes)  # without half a chunk

    def remaining(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """Yield the chunks that are not in the part; check those that are."""
        lines, digest = 0, hashlib.sha256()
        written, source = self.progress.lines, self.progress.source_sha256
        for chunk in chunks:
            digest.update("\n".join((*chunk.lines, "")).encode())
            before, lines = lines, lines + len(chunk.lines)
            if before >= written:
                self._read.append((lines, digest.hexdigest()))
                yield chunk
            elif lines > written or (lines == written and digest.hexdigest() != source):
                break
        else:
            if lines >= written:
                return
        raise UserError(
            f"{self.part}: was made of another text: give the same input, or remove it to begin"
            " again"
        )

    def write(self, chunk: ChunkOutput) -> None:
        """Write the translations of the next chunk, and how far they go."""
        progress, text = self.progress, chunk.text
        self.file.write(text)
        self.file.flush()
        os.fsync(self.file.fileno())
        self._digest.update(text)
        progress.bytes, progress.part_sha256 = progress.bytes + len(text), self._digest.hexdigest()
        progress.lines, progress.source_sha256 = self._read.popleft()
        progress.warnings += chunk.warnings
        files.write_file(self.part.with_suffix(".json"), json.dumps(asdict(progress)).encode())


@contextmanager
def resumable_output(path: str | Path, made_by: Mapping[str, Any]) -> Iterator[ResumableOutput]:
    """Open the part of an output to continue it; it gets the output's name when the block ends."""
    path = Path(path).expanduser()
    if files.is_stream(path) or path.is_dir():
        raise UserError(f"{path}: --resume needs a file as output")
    path = Path(os.path.realpath(path))
    partial_path = path.with_name(f"{path.name}.resume.part")
    state = partial_path.with_suffix(".json")
    with files.errors_as_user_errors(partial_path), open_locked(partial_path) as file:
        files.remove_leftovers(path.parent)
        progress = PartState(json.loads(json.dumps(made_by)))
        if not os.fstat(file.fileno()).st_size:
            state.unlink(missing_ok=True)  # of a part that was finished, or removed
        elif state.exists():
            earlier = files.parse_json(state, files.read_regular_file(state, _MAX_BYTES), PartState)
            differences = []
            for name in {**earlier.made_by, **progress.made_by}:
                before, value = earlier.made_by.get(name), progress.made_by.get(name)
                if before != value:
                    differences.append(f"{name} was {before} and is {value}")
            if differences:
                raise UserError(
                    f"{partial_path}: {'; '.join(differences)}: give the same command, or remove"
                    " it to begin again"
                )
            progress = earlier
        output = ResumableOutput(partial_path, file, progress)
        if progress.lines:
            logger.info(f"seq2seq: {partial_path}: continuing after line {progress.lines:,}")
        try:
            yield output
            if path.suffix.lower() in COMPRESSIONS:
                file.seek(0)
                with create_binary(path) as compressed:
                    shutil.copyfileobj(file, compressed)
                system.let_go(file)
                partial_path.unlink()
            else:
                files.give_name(path, file, partial_path)
        except BaseException:
            if not progress.lines:
                system.let_go(file)
                partial_path.unlink()
            else:
                logger.warning(f"seq2seq: {partial_path}: has what was translated until then")
            raise
        state.unlink(missing_ok=True)


def made_by(
    models: Iterable[str], options: TranslationOptions, translator: Translator, **written: Any
) -> dict[str, Any]:
    """Return all that an output is made by; with an equal one, `--resume` continues it.

    `written` has what the command makes of the translations.
    """
    chosen = asdict(options)
    search = chosen.pop("search")
    for name in ("device", "workers", "scores"):  # they change no text
        del chosen[name]
    if isinstance(options.glossary, str | Path):
        with open_binary(options.glossary) as file:
            chosen["glossary"] = hashlib.sha256(file.read()).hexdigest()
    classes = [digest_of_classes(model) for model in translator.models]
    if any(classes):
        chosen["files of the classes"] = classes
    if edits := digests_of_edits(*MODEL, "search"):
        chosen["changed functions"] = edits
    return {
        "model": _models_sha256(models),
        "seq2seq": __version__,
        **chosen,
        **search,
        **written,
        "device": translator.device.type,
        "dtype": str(next(translator.models[0].parameters()).dtype),
    }


def _models_sha256(runs: Iterable[str]) -> str:
    """Return a SHA-256 of the models of run or model folders, without their cards."""
    models = []
    for run in runs:
        sums = files.read_manifest(find_model(Path(run)))
        sums.pop("README.md", None)
        models.append(sorted(sums.items()))
    return hashlib.sha256(json.dumps(models).encode()).hexdigest()


def _sha256_of(file: BinaryIO, size: int) -> "hashlib._Hash":
    """Return the SHA-256 of the first bytes of a file."""
    digest = hashlib.sha256()
    file.seek(0)
    while size and (block := file.read(min(size, _BLOCK_BYTES))):
        digest.update(block)
        size -= len(block)
    return digest


@contextmanager
def open_locked(path: Path) -> Iterator[BinaryIO]:
    """Open a file to read it and to add to it; refuse one that another process is writing."""
    while True:
        with path.open("a+b") as file, system.locked(path, file, wait=False) as is_held:
            if is_held is False:
                raise UserError(f"{path}: another process is writing it; wait until it ends")
            if _is_named(path, file):
                yield file
                return


def _is_named(path: Path, file: BinaryIO) -> bool:
    """Return whether an open file still has its name, or a process that ended has moved it."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False
