"""A wrong recipe is refused before any work, with every fault, its field and the remedy."""

import pytest
import yaml

from flows.recipe_faults import RecipeError
from flows.recipe_file import built_in_recipes, load_recipe


def faults_of(recipe: str, *overrides: str) -> dict[str, str]:
    with pytest.raises(RecipeError) as caught:
        load_recipe(recipe, overrides)
    return {fault.field: fault.message for fault in caught.value.faults}


@pytest.fixture
def minimal(tmp_path):
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "one.txt").write_text("Some text.\n")
    path = tmp_path / "mine.yaml"
    path.write_text("name: mine\nsources:\n- {name: a, reader: text, path: texts}\n")
    return path


@pytest.mark.parametrize("name", built_in_recipes())
def test_every_built_in_recipe_is_right(name):
    recipe = load_recipe(name)
    assert recipe.name == name
    assert recipe.description


def test_a_recipe_survives_being_written_out_and_read_again(tmp_path):
    recipe = load_recipe("quickstart")
    path = tmp_path / "again.yaml"
    path.write_text(recipe.to_yaml())
    assert load_recipe(str(path)) == recipe


def test_overrides_change_exactly_one_value():
    plain = load_recipe("quickstart")
    changed = load_recipe("quickstart", ["training.train_tokens=2M"])
    assert changed.training.train_tokens == 2_000_000
    assert changed.model_dump(exclude={"training"}) == plain.model_dump(exclude={"training"})


def test_an_override_reaches_sections_the_file_leaves_out(minimal):
    recipe = load_recipe(str(minimal), ["curation.dedup.jaccard=0.7"])
    assert recipe.curation.dedup.jaccard == 0.7


def test_paths_are_relative_to_the_file_and_overrides_to_the_working_directory(
    minimal, tmp_path, monkeypatch
):
    assert load_recipe(str(minimal)).sources[0].path == str(tmp_path / "texts")
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "more").mkdir(parents=True)
    (elsewhere / "more" / "two.txt").write_text("Other text.\n")
    monkeypatch.chdir(elsewhere)
    recipe = load_recipe(str(minimal), ["sources.0.path=more"])
    assert recipe.sources[0].path == str(elsewhere / "more")


def test_every_fault_is_named_in_one_go():
    faults = faults_of(
        "quickstart",
        "training.model.hiden_size=3",
        "training.layout.tensor_parallel=3",
        "training.layout.pipeline_parallel=3",
        "training.global_batch=7",
        "training.sequence_length=256",
        "training.optimizer.learning_rate=fast",
        "tokenizer.vocab_size=12",
        "sources.0.packages=[nosuchpackage]",
    )
    assert "did you mean 'hidden_size'" in faults["training.model.hiden_size"]
    assert "4 attention heads" in faults["training.layout.tensor_parallel"]
    assert "Use 1, 2 or 4" in faults["training.layout.tensor_parallel"]
    assert "4 layers" in faults["training.layout.pipeline_parallel"]
    assert "micro_batch x data_parallel = 4 x 2 = 8" in faults["training.global_batch"]
    assert "max_positions = 128" in faults["training.sequence_length"]
    assert "valid number" in faults["training.optimizer.learning_rate"]
    assert "257" in faults["tokenizer.vocab_size"]
    assert any("nosuchpackage" in message for message in faults.values())


def test_a_package_that_is_not_installed_is_named():
    (message,) = faults_of("quickstart", "sources.0.packages=[nosuchpackage]").values()
    assert "nosuchpackage" in message


def test_a_missing_input_path_is_named(minimal, tmp_path):
    (message,) = faults_of(str(minimal), "sources.0.path=nowhere").values()
    assert "nowhere" in message


def test_an_unknown_tokenizer_is_named(minimal, tmp_path):
    faults = faults_of(str(minimal), "tokenizer.path=no-tokenizer-here")
    assert "no-tokenizer-here" in faults["tokenizer"]


def test_an_end_of_text_that_the_tokenizer_lacks_is_named(minimal, tmp_path):
    from tokenizers import Tokenizer, models

    Tokenizer(models.BPE(vocab={"a": 0}, merges=[])).save(str(tmp_path / "tokenizer.json"))
    faults = faults_of(str(minimal), f"tokenizer.path={tmp_path / 'tokenizer.json'}")
    assert "<|endoftext|>" in faults["tokenizer"]


@pytest.mark.parametrize(
    ("override", "field", "part"),
    [
        ("training.train_tokens=2X", "training.train_tokens", "'2X' is not a count"),
        ("training.train_tokens=1.5", "training.train_tokens", "valid integer"),
        ("training.train_tokens=100", "training.train_tokens", "less than one step"),
        ("training.precision=fp8", "training.precision", "'fp32' or 'bf16'"),
        ("evaluation.tasks=[clooze]", "evaluation.tasks.0", "did you mean 'cloze'"),
        ("evaluation.num_shots=[1,1]", "evaluation.num_shots", "twice"),
        ("sources.0.reader=jsonn", "sources.0.reader", "'jsonl'"),
        ("sources.1.name=python", "sources", "two sources are called python"),
        ("sources.0.name='a/b'", "sources", "no source name"),
        ("sources=[]", "sources", "at least 1"),
        ("seed=-1", "seed", "greater than or equal to 0"),
        ("name=My Run", "name", "pattern"),
        ("curation.dedup.jaccard=1.5", "curation.dedup.jaccard", "less than or equal to 1"),
        ("curation.held_out_fraction=0", "curation.held_out_fraction", "greater than 0"),
        ("training.optimizer.warmup_tokens=3M", "training.optimizer.warmup_tokens", "Shorten"),
        ("tokenizer.end_of_text=' x'", "tokenizer.end_of_text", "white space"),
        ("run.num_workers=0", "run.num_workers", "greater than 0"),
        ("nokey", "nokey", "key=value"),
        ("sources.9.path=x", "sources.9.path", "nothing is called '9'"),
        ("training.model.num_layers.deep=1", "training.model.num_layers.deep", "nothing is called"),
        ("training=[1", "training", "no YAML value"),
        ("name=2020-99-99", "name", "no YAML value"),
        ("seed=9223372036854775808", "seed", "too large"),
        (f"seed={'9' * 5000}", "seed", "too large"),
        ("training.train_tokens=1e30", "training.train_tokens", "not a count"),
        ("training.train_tokens=99999T", "training.train_tokens", "less than or equal"),
        ("training.model.num_layers=1000000000", "training.model.num_layers", "less than or equal"),
        ("training.optimizer.learning_rate=.inf", "training.optimizer.learning_rate", "finite"),
        ("training.optimizer.learning_rate=.nan", "training.optimizer.learning_rate", "finite"),
        ("curation.dedup.jaccard=.nan", "curation.dedup.jaccard", "finite"),
        ("tokenizer.shard_bytes=0", "tokenizer.shard_bytes", "greater than 0"),
        ('description="\\uD800"', "description", "no valid Unicode text"),
        ('evaluation.prompts=["\\uD800"]', "evaluation.prompts.0", "no valid Unicode text"),
        ("run.num_workers=1000000", "run.num_workers", "less than or equal"),
    ],
)
def test_each_fault_is_told_with_its_field_and_the_way_out(override, field, part):
    assert part in faults_of("quickstart", override)[field]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "holds no mapping"),
        ("- a\n- b\n", "holds no mapping"),
        ("name: a\nname: b\n", "line 2, column 1: the key 'name' stands twice"),
        ("name: [a\n", "line 2"),
        ("1: a\n", "the key 1 is no text"),
        ("name: a\n\tsources: []\n", "line 2"),
        ("!!python/object/apply:os.system ['true']\n", "line 1"),
        ("name: 2020-99-99\n", "month must be in 1..12"),
        (f"seed: {'9' * 5000}\n", "line 1, column 7: the number is too large"),
        (f"seed: 0x{'f' * 9000}\n", "line 1, column 7: the number is too large"),
        ("a: " + "[" * 20_000 + "]" * 20_000 + "\n", "nested too deeply"),
        ("name: &a [*a]\n", "name: input should be a valid string"),
    ],
)
def test_a_file_that_is_no_recipe_is_refused_with_the_place(tmp_path, text, part):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    assert part in "\n".join(f"{field}: {m}" for field, m in faults_of(str(path)).items())


def test_a_value_that_unfolds_to_gigabytes_is_told_in_few_words(tmp_path):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    for n in range(1, 30):
        lines.append(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]")
    path = tmp_path / "bomb.yaml"
    path.write_text("\n".join([*lines, "name: *a29", "sources: []"]) + "\n")
    assert len(faults_of(str(path))["name"]) < 200


def test_merge_keys_are_read_and_keys_beside_them_win(minimal):
    text = minimal.read_text()
    minimal.write_text(text + "run: {<<: {num_workers: 3, launcher: torchrun}, num_workers: 4}\n")
    run = load_recipe(str(minimal)).run
    assert (run.num_workers, run.launcher) == (4, "torchrun")


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b", "", "-", "\udcff.yaml", "/dev/null"])
def test_a_name_that_can_be_no_recipe_is_refused(name):
    assert faults_of(name)


def test_an_input_path_that_no_file_system_holds_is_a_fault(minimal):
    (message,) = faults_of(str(minimal), f"sources.0.path={'x' * 5000}").values()
    assert "name too long" in message


def test_a_file_that_is_not_utf8_is_refused(tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_bytes(b"name: \xff\n")
    assert "not UTF-8 at byte 6" in faults_of(str(path))[""]


def test_an_unknown_recipe_lists_those_there_are():
    message = faults_of("quickstrat")[""]
    assert "Did you mean quickstart?" in message
    for name in built_in_recipes():
        assert name in message


def test_what_a_recipe_shows_is_yaml_with_all_defaults():
    shown = yaml.safe_load(load_recipe("quickstart").to_yaml())
    assert shown["training"]["optimizer"]["adam_beta2"] == 0.95
    assert shown["curation"]["dedup"]["num_bands"] == 14
