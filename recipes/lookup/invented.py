"""Texts that a seed writes: minutes, notes of wards and logs, as full of set phrases and names as a
person's own.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence

Words = Mapping[str, Sequence[str]]

COUNCIL: Words = {
    "title": (
        "Planning committee",
        "Parish council",
        "Allotments working group",
        "Finance committee",
    ),
    "person": (
        "Mrs Achterberg",
        "Mr Fanshawe",
        "Cllr Oyelaran",
        "Dr Wetherspoon-Lund",
        "Ms Kavanagh",
        "Cllr Prys",
    ),
    "place": (
        "Tanner's Yard",
        "Quarry Lane",
        "St Osyth's Green",
        "the Corn Hall",
        "Mill Bridge",
        "Upper Fold",
    ),
    "body": (
        "the Highways Agency",
        "the Tree Officer",
        "the Drainage Board",
        "Wexcombe District Council",
    ),
    "thing": (
        "the bus shelter",
        "the playground fence",
        "the war memorial",
        "the street lamp",
        "the footpath",
    ),
    "sentence": (
        "{person} reported that {thing} at {place} had been damaged again, and would write to "
        "{body}.",
        "Resolved: to pay {number} pounds to {body} for the repair of {thing} at {place}.",
        "{person} declared an interest in the item on {place} and left the room.",
        "The clerk read a letter from {body} about {thing} at {place}; no reply is needed.",
        "It was proposed by {person}, seconded by {person}, that the minutes of {day} be signed.",
        "An objection to application {code} for {place} was received from {body}.",
        "{person} asked when {body} would at last cut the hedges along {place}.",
        "The precept for next year was discussed; {person} thought that {number} pounds would do.",
        "Members of the public complained about parking at {place} on market days.",
        "{person} will obtain three quotations for {thing} before the meeting of {day}.",
    ),
}
WARD: Words = {
    "title": (
        "Night handover, ward 7B",
        "Morning round, ward 7B",
        "Discharge meeting",
        "Bed meeting",
    ),
    "person": (
        "Mr Adeyemi",
        "Mrs Lindqvist",
        "Mr Okafor",
        "Miss Haddad",
        "Mrs Beaumont",
        "Mr Szczepanski",
    ),
    "place": ("bay 2", "side room 4", "bay 5", "the high dependency unit", "bay 1", "side room 1"),
    "body": ("the renal team", "physiotherapy", "Dr Vantongeren", "the stoma nurse", "pharmacy"),
    "thing": ("furosemide", "the catheter", "apixaban", "the drain", "oxygen by nasal cannula"),
    "sentence": (
        "{person} moved from {place} to {place} after a spike of temperature; cultures sent.",
        "{person} in {place} remains on {thing}, to be reviewed by {body} on {day}.",
        "Await advice of {body} about {thing} for {person}.",
        "{person} is medically fit, but the package of care will not start until {day}.",
        "Potassium of {person} was {decimal} this morning, repeat after the next dose of {thing}.",
        "Family of {person} would like to speak to {body} about the plan.",
        "Fluid balance of {person} is positive by {number} ml; {body} aware.",
        "Please chase the echo of {person}, requested by {body} on {day}.",
        "NEWS of {person} went up to {digit}, {body} informed, now back in {place}.",
        "{person} declined {thing} overnight and had to be seen by {body}.",
    ),
}
SERVER: Words = {
    "host": ("gw-aldgate-01", "gw-aldgate-02", "cache-perivale", "db-rotherhithe-03"),
    "unit": ("tollkeeper", "ledgerd", "mirrorfs", "certwatch"),
    "peer": ("10.44.0.17", "10.44.0.23", "10.44.1.5", "10.44.3.201"),
    "sentence": (
        "{host} {unit}: WARN retrying connection to {peer} after timeout of {number} ms",
        "{host} {unit}: INFO accepted session {code} from {peer} port {number}",
        "{host} {unit}: ERROR lost quorum with {host}, stepping down after {digit} missed "
        "heartbeats",
        "{host} {unit}: INFO flushed {number} pages to segment {code} in {decimal} s",
        "{host} {unit}: WARN certificate of {host} expires in {digit} days, renewal queued",
        "{host} {unit}: INFO reloaded configuration from revision {code} without errors",
        "{host} {unit}: DEBUG lease for {peer} renewed by {host} until epoch {number}",
        "{host} {unit}: ERROR checksum mismatch in segment {code}, fetching replica from {host}",
    ),
}
BUILD: Words = {
    "host": ("libharrow", "libharrow-python", "osprey-cli", "quillet-docs"),
    "unit": ("configure", "compile", "link", "package", "publish"),
    "peer": ("runner-tamar", "runner-lynher", "runner-camel"),
    "sentence": (
        "[{unit}] Checking whether the toolchain of {peer} supports sanitizers ... yes",
        "[{unit}] Building target {host} with {digit} jobs on {peer}",
        "[{unit}] warning: unused variable in generated binding of {host} ({code})",
        "[{unit}] {host} took {decimal} s, artefact {code} uploaded to the staging bucket",
        "[{unit}] Step skipped because {host} did not change since build {code}",
        "[{unit}] error: undefined reference while linking {host} on {peer}, see log of step "
        "{digit}",
        "[{unit}] Restored cache of {peer} for {host}, {number} objects reused",
        "[{unit}] Waiting for lock of {host} held by {peer} since {number} ms",
    ),
}
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")
SLOT = re.compile(r"{(\w+)}")


def sentence(words: Words, random_: random.Random) -> str:
    """Return a sentence whose slots hold names and numbers."""

    def filled(slot: re.Match[str]) -> str:
        match slot[1]:
            case "number":
                return str(random_.randrange(12, 1900))
            case "digit":
                return str(random_.randrange(2, 10))
            case "decimal":
                return f"{random_.uniform(2, 9):.1f}"
            case "code":
                return "".join(random_.choice("0123456789abcdef") for _ in range(6))
            case "day":
                return random_.choice(DAYS)
        return random_.choice(words[slot[1]])

    return SLOT.sub(filled, random_.choice(words["sentence"]))


def minutes(words: Words, seed: int, meetings: int) -> str:
    """Return so many meetings, each with a title and three paragraphs of two to four sentences."""
    random_ = random.Random(seed)
    found = []
    for number in range(meetings):
        found.append(
            f"## {random_.choice(words['title'])}, {random_.choice(DAYS)}, meeting {number + 1}"
        )
        found += [
            " ".join(sentence(words, random_) for _ in range(random_.randrange(2, 5)))
            for _ in range(3)
        ]
    return "\n\n".join(found) + "\n"


def log(words: Words, seed: int, lines: int) -> str:
    """Return so many lines, in the order of their times."""
    random_, time, found = random.Random(seed), 0.0, []
    for _ in range(lines):
        time += random_.expovariate(1 / 7)
        clock = f"{int(time) // 3600:02}:{int(time) // 60 % 60:02}:{int(time) % 60:02}"
        found.append(f"{clock} {sentence(words, random_)}")
    return "\n".join(found) + "\n"
