"""Translation as a step of Ray Data, which reads, distributes, retries and writes."""

from typing import TYPE_CHECKING, Any

from seq2seq.decoding.options import TranslationOptions
from seq2seq.decoding.translator import Translator
from seq2seq.errors import UserError

if TYPE_CHECKING:
    from numpy.typing import NDArray


class TranslateLines:
    """Add a column with the translations of another to each batch of `map_batches`."""

    def __init__(
        self,
        model: str,
        options: TranslationOptions | None = None,
        *,
        column: str = "text",
        to_column: str = "translation",
    ) -> None:
        self.translator = Translator.load(model, options)
        self.column, self.to_column = column, to_column

    def __call__(self, batch: "dict[str, NDArray[Any]]") -> dict[str, Any]:
        """Translate a batch, given and returned as columns."""
        if self.column not in batch:
            raise UserError(f"no column {self.column!r} among {', '.join(batch)}: give column=NAME")
        lines = batch[self.column].tolist()
        if wrong := [line for line in lines if not isinstance(line, str)]:
            raise UserError(f"column {self.column!r} has {wrong[0]!r:.99}, no text: drop such rows")
        translations = self.translator.translate_stream(lines)
        return batch | {self.to_column: [translation.text for translation in translations]}
