"""The findings that no rule makes: what reading, resolving, running and packaging have to say, and what to do about it."""

import re

_TEXT = """\
PS000 unparsable-rewrite
    A rewrite would not parse, so the file was left as it is. This is a fault of the rule; please report it.
PS001 syntax-error
    The file does not parse with this Python, so nothing in it is migrated. Repair it, or ignore the remark if
    it is for Python 2.
PS002 unreadable-file
    The file cannot be read or decoded. Check its permissions and its encoding declaration (PEP 263).
PS003 skipped-file
    The file is too large or nested too deeply to be source that a person wrote, or may not be read; it was left out.
PS006 notebook-order
    The notebook's cells were run in another order than they stand in; it was read in the order in which they stand.
PS010 weights-asked-for
    The script must be told its weights on the command line. Give them with --checkpoint FILE.
PS011 choice-made
    Several scripts, models, command lines or configuration files fit; the one that the documentation and their kinds speak for
    was taken. The remark names the others and the option that takes one of them.
PS012 name-defined-twice
    Several models have this name; the first one was taken. --entry and --model choose.
PS013 transform-not-followed
    The evaluation transform could not be followed from the model's call to where it is defined.
PS014 neutral-argument
    A script requires an argument that the migrator had to fill with a neutral value. Give the right one with
    --entry "SCRIPT FLAG VALUE".
PS015 built-with-defaults
    No script could be followed to this model, so it was built with its own defaults, or for images of the size that the
    repository's data sets have. --entry "SCRIPT ARGUMENTS" names the
    script and what it is run with.
PS016 library-owns-loop
    An object of a library holds the model and its loops, so there is no call of the model that could be rewritten. Call the
    model itself in a loop of your own, or package it with headrace compile.
PS017 submodule-not-here
    A git submodule is not checked out, so the code in it is missing. Fetch it with git submodule update --init --recursive.
PS018 content-not-here
    Git LFS or git-annex left a pointer where a file is to be, so what the file holds is not here. Fetch it with git lfs pull,
    or git annex get; until then the trial runs do without it, as without a file that is missing.
PS020 settings
    Something under [tool.headrace] in pyproject.toml is not a setting, or has a value that does not fit; it
    was ignored.
PS021 untrusted-rules
    The repository names rules of its own. They are code, so they run only with --trust-rules.
PS401 script-differs
    The migrated script does not do what the original does. Look at what differs; --ignore leaves out the rule
    in question.
PS402 script-not-run
    The original script does not run here, so its migrated form could not be compared with it. Give it the
    data or arguments that it needs.
PS403 unproved
    The scripts were not run because of --no-verify; that they compute the same is unproved.
PS404 repaired-first
    The original scripts do not run as they came, so they ran with their repairs alone; the runs prove what was rewritten after.
PS405 slice-run
    A script was run on a part of its data set, evenly spread, before and after alike. --full runs it on all of it.
PS406 compared-in-part
    The original and the migrated script were stopped by the same error, of the script's own or over something that stands in,
    so they were compared only up to there; the message says where.
PS407 unsteady-print
    A script prints something else, and so does the original where its model's outputs change by as little as rounding: a fit
    that runs away, say. That number says nothing, so it was not compared; all else that the script computes and prints was.
PS408 no-script
    No script or notebook was found that calls a model, so none was run before and after: a package is proved, a rewrite is not.
PS409 unsteady-data
    From some call on, rounding decides what a script feeds its model, as the signs of gradients do in an attack: the original
    does so too where its model's outputs change by as little. So the scripts are compared up to that call and not beyond; the
    message says where.
PS500 unresolved-model
    How the model is built could not be told, so it was not packaged; the scripts migrate nevertheless.
PS501 model-not-built
    The model's construction failed when it was run. The message is the error of the repository's own code.
PS502 model-not-packaged
    The model was built, but could not be captured, proved or written. The obstacles follow, each at its own
    line.
PS503 not-your-weights
    No file of yours gave the model its weights, or its checkpoint did not load: it would give random answers. Give the
    trained weights with --checkpoint FILE; --random-weights packages random ones, which the report then says.
PS504 no-preprocessing
    No evaluation transform could be expressed exactly, so the package takes tensors instead of images.
PS505 no-labels
    The repository does not state as many class names as the model has outputs, so the package has none.
PS506 linked-data
    A file or folder is too big to copy; a link to the original stands in its place. Or it is a link out of the
    repository, which the trial runs cannot follow.
PS507 partial-isolation
    This platform lets no process cut itself off completely; the scripts ran with the limits that hold here.
PS508 package-not-served
    The package did not load or run in a fresh process without the repository.
PS509 preprocessing-note
    A remark on the recovered preprocessing, for example where training and evaluation differ.
PS510 write-recovered
    An earlier --write was interrupted. Another --write, or headrace undo, gives its files their old bytes before anything else;
    what writes nothing only tells of them. Or an earlier --out was: what stood there before is back.
PS511 not-written
    The files could not be changed in place; they are as they were.
PS512 repairs-compared
    The model of the repaired sources was compared with that of the sources as they came; the message says with what result.
PS513 repairs-differ
    After the repairs the model computes something else than before them. Leave them out with --ignore, and please report it.
PS514 data-not-needed
    The construction of the model makes a data set whose files are not here. It was made without them, since the model needs
    nothing that only they tell.
PS516 script-not-rehearsed
    A script was run to see its model, and stopped before it called one, or called none that classifies images; the message
    says where and why.
PS517 stand-ins
    A script was run to see its model, and parts of its world that are not here were stood in for; the message names them.
PS518 read-otherwise
    Reading the sources leads to another model than the one that the script calls when it is run, which is the one that is
    taken.
PS519 outputs-taken-for
    Nothing in the sources, nor what a run of the script does with the model's outputs, tells what they are or from where on a
    label holds; the message says what they are taken for. --task says otherwise.
PS520 model-left-out
    One of the models that --all-models asks for could not be packaged; the message says why. The others are as usual.
PS521 route-kept
    A route of the application was asked about made images, and its answers follow from the package's scores by a form that was
    proved on other images. headrace serve --keep-routes answers at its path in that form.
PS522 route-not-kept
    What a route of the application answers could not be shown to follow from the package's scores alone, so the package does
    not answer in its place. The message names the member of the answer, or what else stands in the way.
PS530 trained-otherwise
    Training prepares images otherwise than evaluation. The package does as evaluation does; see which of them is meant.
PS531 evaluated-in-training-mode
    A script uses its model without calling eval() first, so that batch normalization and dropout work as in training. The
    package has the model in evaluation mode, as it is meant to be used: its answers differ from those of that script. So do
    those of a model in which dropout draws while it is evaluated, as for estimates of uncertainty.
PS532 guessed-classes
    No file states how many classes there are, and the data is not here: the model has as many outputs as the data that stood in
    had classes. With --data DIR it has as many as yours.
PS533 decided-otherwise
    Between its model and what it says, a script changes what the class is chosen from: other models, other views of the image,
    a temperature, classes left out, a least score; or its model is called with other arguments for other images. The package
    has the model alone, so it says the class with the largest of the model's numbers, with its share. Do in the model's
    forward() what is to be served with it.
PS534 printed-otherwise
    On the images that it was run with, a script prints, or writes into a table or text, other names than those that the package
    gives for the largest outputs of its model: it looks them up in another order or table, or chooses the class otherwise. Or
    the score beside a name is another than the share of that output, as by a temperature, a calibration or other models.
PS535 other-precision
    The model's weights are of another precision than float32, and so are the images that its script gives it. The package has
    both in float32, and its plan chooses a lower one where that is measured to change nothing.
"""

CODES: dict[str, tuple[str, str]] = {
    code: (name, " ".join(text.split()))
    for code, name, text in re.findall(r"^(\w+) (\S+)\n((?: {4}.*\n)+)", _TEXT, re.MULTILINE)
}
"""Code -> its name, and what it means."""


def explained(code: str) -> tuple[str, str]:
    """A name and a sentence for the code of a finding that no rule makes."""
    if code in CODES:
        return CODES[code]
    if code.startswith("PG"):
        return (
            "graph-obstacle",
            "Something in the model that no graph can hold. The message says what, and what to write instead.",
        )
    return "remark", "A remark of headrace migrate; its message says what to do."
