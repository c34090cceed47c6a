"""The command line: `mtnlg`.

Exit codes: 0 good; 1 the run, or what was looked at, failed; 2 wrong use or wrong recipe.
A user's mistake prints a message, never a traceback. Heavy libraries are imported by the command
that needs them, so that `mtnlg --help` answers at once.
"""

from __future__ import annotations

import io
import json
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from flows.errors import RunFailedError, WrongUseError

if TYPE_CHECKING:
    from tasks.store import ArtifactStore

app = typer.Typer(
    name="mtnlg",
    help="Raw text in, evaluated language model out: one resumable, inspectable pipeline.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
recipes_app = typer.Typer(
    name="recipes", help="List and show built-in recipes.", no_args_is_help=True
)
app.add_typer(recipes_app)

Root = Annotated[
    Path,
    typer.Option(
        "--root", envvar="MTNLG_ROOT", help="Folder of artifacts and runs.", file_okay=False
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--override",
        "-o",
        metavar="KEY=VALUE",
        help="Change one value of the recipe, as in training.train_tokens=2M. Repeatable.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
RunName = Annotated[
    str | None, typer.Argument(metavar="[RUN]", help="A run's name; the latest if absent.")
]
DEFAULT_ROOT = Path("mtnlg-data")


@app.command()
def run(
    recipe: Annotated[str, typer.Argument(help="A built-in recipe's name, or a YAML file.")],
    override: Overrides = None,
    from_stage: Annotated[
        str | None,
        typer.Option("--from", metavar="STAGE", help="Build this stage and all after it anew."),
    ] = None,
    force: Annotated[
        list[str] | None,
        typer.Option(metavar="STAGE", help="Build this stage anew. Repeatable."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the recipe, say what would run, run nothing.")
    ] = False,
    root: Root = DEFAULT_ROOT,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show Prefect's log on the terminal.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run a recipe: raw text in, evaluated language model out.

    Stages whose recipe, code and inputs are unchanged are reused; a run that was killed goes on
    where it stood.
    """
    from flows.recipe_file import load_recipe

    loaded = load_recipe(recipe, override or ())
    forced = _forced_stages(from_stage, force or [])
    command = _command(recipe, override or [], root)
    if dry_run:
        _dry_run(loaded, command, forced, root, as_json)
        return
    from flows.run import run_recipe

    try:
        result = run_recipe(
            loaded, command=command, root=root, forced_stages=forced, verbose=verbose, quiet=as_json
        )
    except KeyboardInterrupt:  # Typer would end in silence.
        _fail(f"interrupted; go on where it stood with: {command}", 130)
    if as_json:
        _print_json(result)


@app.command()
def status(run_name: RunName = None, root: Root = DEFAULT_ROOT, as_json: AsJson = False) -> None:
    """Show each stage of a run: built, stale, missing, failed or running, with its key figures."""
    from flows.runs import run_named
    from flows.status import print_status, status_of

    found = status_of(run_named(root, run_name), _store(root))
    if as_json:
        _print_json(found)
    else:
        print_status(found)


@app.command()
def verify(
    artifact: Annotated[
        str | None,
        typer.Argument(
            metavar="[ARTIFACT]",
            help="A stage's name, an artifact's folder or the start of its key; all if absent.",
        ),
    ] = None,
    root: Root = DEFAULT_ROOT,
    as_json: AsJson = False,
) -> None:
    """Read artifacts again and compare every file with the size and hash it was published with."""
    from flows.verify import print_verification, verify_artifacts

    checked = verify_artifacts(_store(root), artifact)
    if as_json:
        _print_json(checked)
    else:
        print_verification(checked)
    if any(entry["faults"] for entry in checked):
        raise typer.Exit(1)


@app.command()
def report(run_name: RunName = None, root: Root = DEFAULT_ROOT, as_json: AsJson = False) -> None:
    """Print the results of a run and where its HTML report is."""
    from flows.runs import run_named

    record = run_named(root, run_name)
    folder = record.artifact_folder("report")
    if folder is None:
        raise WrongUseError(
            f"run {record.run_id} has no report yet (state: {record.state}); "
            f"finish it with: {record.command}"
        )
    try:
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunFailedError(
            f"the report in {folder} is gone or damaged ({error}); "
            f"make it again with: {record.command} --force report"
        ) from error
    if as_json:
        _print_json(summary)
        return
    from rich.console import Console

    from flows.result import print_result

    print_result(summary, Console(), folder / "report.html")


@app.command()
def generate(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="[MODEL]",
            help="A run's name or a Hugging Face GPT-2 folder; the latest run if absent.",
        ),
    ] = None,
    prompt: Annotated[
        list[str] | None, typer.Option("--prompt", "-p", help="Text to continue. Repeatable.")
    ] = None,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Longest continuation.")] = 40,
    temperature: Annotated[
        float, typer.Option(min=0.0, help="0 always takes the likeliest token.")
    ] = 0.8,
    top_k: Annotated[int, typer.Option(min=0, help="Sample from the k likeliest; 0: all.")] = 40,
    top_p: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Sample from the likeliest p of mass.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="Equal seeds give equal text.")] = 1234,
    root: Root = DEFAULT_ROOT,
    as_json: AsJson = False,
) -> None:
    """Continue prompts with a trained model."""
    if not prompt:
        raise WrongUseError('nothing to continue; give a prompt, as in --prompt "Return the"')
    from flows.generate import model_folder

    folder = model_folder(root, model)
    from evaluation.generation import SettingsError
    from evaluation.generation import generate as sample

    try:
        texts = sample(
            folder,
            prompt,
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
        )
    except SettingsError as error:
        raise WrongUseError(str(error)) from None
    if as_json:
        pairs = zip(prompt, texts, strict=True)
        _print_json([{"prompt": p, "continuation": text} for p, text in pairs])
        return
    for given, text in zip(prompt, texts, strict=True):
        typer.echo(f"{typer.style(given, bold=True)}{text}\n")


@recipes_app.command("list")
def list_recipes(as_json: AsJson = False) -> None:
    """Name the built-in recipes."""
    import yaml

    from flows.recipe_file import built_in_recipes

    loaded = {name: yaml.safe_load(text) for name, text in built_in_recipes().items()}
    described = {name: recipe.get("description", "") for name, recipe in loaded.items()}
    if as_json:
        _print_json(described)
        return
    for name, description in described.items():
        typer.echo(f"{name}\n    {description}")


@recipes_app.command("show")
def show_recipe(
    recipe: Annotated[str, typer.Argument(help="A built-in recipe's name, or a YAML file.")],
    override: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Print a recipe whole, defaults included: a start for one of your own."""
    from flows.recipe_file import load_recipe

    loaded = load_recipe(recipe, override or ())
    if as_json:
        _print_json(loaded.model_dump(mode="json"))
    else:
        typer.echo(loaded.to_yaml(), nl=False)


def _command(recipe: str, overrides: list[str], root: Path) -> str:
    """What starts the same run again: no option that only says what to build anew."""
    options = [part for value in overrides for part in ("-o", value)]
    if root != DEFAULT_ROOT:
        options += ["--root", str(root)]
    return shlex.join(["mtnlg", "run", recipe, *options])


def _forced_stages(from_stage: str | None, force: list[str]) -> frozenset[str]:
    from flows.stages import STAGES

    for name in [*([from_stage] if from_stage else []), *force]:
        if name not in STAGES:
            raise WrongUseError(f"{name!r} is no stage; stages are {', '.join(STAGES)}")
    later = STAGES[STAGES.index(from_stage) :] if from_stage else ()
    return frozenset(force) | frozenset(later)


def _dry_run(recipe: Any, command: str, forced: frozenset[str], root: Path, as_json: bool) -> None:
    from flows.plan import plan, print_plan

    planned = plan(recipe, _store(root), command, forced)
    if as_json:
        _print_json([{"stage": p.stage, "outlook": p.outlook, "key": p.key} for p in planned])
    else:
        print_plan(recipe, planned)


def _store(root: Path) -> ArtifactStore:
    from tasks.store import ArtifactStore

    return ArtifactStore(root)


def _print_json(value: Any) -> None:
    encoding = sys.stdout.encoding or "ascii"
    # What the encoding lacks would come out as question marks.
    escaped = not encoding.lower().startswith("utf")
    typer.echo(json.dumps(value, indent=2, ensure_ascii=escaped, default=str))


def main() -> None:
    """Entry point of the `mtnlg` command."""
    from flows.recipe_faults import RecipeError

    _mend_streams()
    try:
        _check_arguments()
        app()
    except (WrongUseError, RecipeError) as error:
        _fail(error, 2)
    except (ValueError, RunFailedError) as error:
        _fail(error, 1)
    except OSError as error:
        named = "" if error.filename is None else f"{str(error.filename)[:300]}: "
        _fail(f"{named}{error.strerror or error}", 1)
    except KeyboardInterrupt:
        _fail("interrupted; run the same command again to go on", 130)


def _mend_streams() -> None:
    """Let output go nowhere where it was closed, and say what the terminal lacks letters for."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest that is free: otherwise the next file opened would get what is printed.
            os.open(os.devnull, os.O_RDWR)
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _check_arguments() -> None:
    """Refuse bytes that are no text: nothing they would end up in, record or report, takes them."""
    for argument in (*sys.argv[1:], os.environ.get("MTNLG_ROOT", "")):
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise WrongUseError(f"{os.fsencode(argument)!r} is not UTF-8; write it so") from None


def _fail(error: object, code: int) -> NoReturn:
    typer.echo(f"mtnlg: {error}", err=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
