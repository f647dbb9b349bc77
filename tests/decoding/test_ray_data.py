"""Ray Data with a local cluster of two workers."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from seq2seq import TranslateLines
from seq2seq.decoding.options import TranslationOptions
from seq2seq.decoding.translator import Translator
from seq2seq.model_folder import TrainedModel, save_model
from seq2seq.search import SearchConfig

ray = pytest.importorskip("ray")
pytestmark = [
    pytest.mark.slow,  # half a minute, most of it to start the cluster
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore"),  # Ray's own
]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("RAY_worker_niceness", "0")
    ray.init(num_cpus=4, include_dashboard=False)
    yield
    ray.shutdown()


@pytest.mark.usefixtures("cluster")
def test_workers_add_translations_to_text_and_to_tables(
    make_trained: Callable[[], TrainedModel], sentences: list[str], tmp_path: Path
) -> None:
    import ray.data

    ray.data.DataContext.get_current().execution_options.preserve_order = True
    save_model(tmp_path / "model", make_trained())
    options = TranslationOptions(device="cpu", workers=1, search=SearchConfig(beam_size=1))
    lines = ["", *sentences, "42"]
    expected = [one.text for one in Translator.load(tmp_path / "model", options).translate(lines)]
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in lines))
    table = pyarrow.table({"number": range(len(lines)), "en": lines})
    pyarrow.parquet.write_table(table, tmp_path / "table.parquet")

    def translate(rows: "ray.data.Dataset", **columns: str) -> "ray.data.Dataset":
        return rows.map_batches(
            TranslateLines,
            fn_constructor_kwargs={"model": str(tmp_path / "model"), "options": options, **columns},
            batch_size=16,
            compute=ray.data.ActorPoolStrategy(size=2),
        )

    text = ray.data.read_text(str(tmp_path / "text"), drop_empty_lines=False)
    assert [row["translation"] for row in translate(text).take_all()] == expected
    rows = ray.data.read_parquet(str(tmp_path / "table.parquet"))
    translate(rows, column="en", to_column="de").write_parquet(str(tmp_path / "translated"))
    written = pyarrow.parquet.read_table(tmp_path / "translated").sort_by("number").to_pydict()
    assert written == {"number": list(range(len(lines))), "en": lines, "de": expected}
