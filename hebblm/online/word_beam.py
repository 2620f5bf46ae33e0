"""Whole words that a model of pieces expects next: a search by probability that knows what it has
not seen.

Every beginning of a word has a probability, and so has what is left of it after the words that were
found. The search follows the most probable beginnings first. It ends when no word that was not
found, and no other way to write one that was, can change the list.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from hebblm.online.effort import LEAST, THOROUGH, SearchEffort
from hebblm.online.expected import Expected, Suggestion
from hebblm.text.piece_texts import PieceTexts, decoded
from hebblm.text.word_ends import CLOSING, first_word, is_unspaced, separated, without_closing

Expect = Callable[[Sequence[tuple[int, ...]]], tuple[Tensor, Tensor]]
# of a word's probability: what ways to write it may still add when the search ends
TOLERANCE = 1e-3
KEPT = 4096  # most probable pieces after a beginning that are kept; the others count as one
AT_ONCE = 32  # beginnings that the model reads together
MAX_WORD_PIECES = 64
_CLOSING = CLOSING.encode()


@dataclass(frozen=True, slots=True)
class Place:
    """Where words are expected: what stands before it, and the letters that they begin with.

    Args:
        target: bytes that the text begins with: spaces before the word, and its typed letters.
        given: first bytes of the target that are not a part of the word.
        stripped: whether spaces before the letters of the target are left open.
        new: whether a word must not go on with the letters before the place.
        unspaced: whether the letter before the place is of a script without spaces.
    """

    target: bytes = b""
    given: int = 0
    stripped: bool = False
    new: bool = False
    unspaced: bool = False


@dataclass(frozen=True, slots=True)
class _Beginning:
    """Some pieces, and their probabilities."""

    ids: tuple[int, ...]
    adapted: float
    base: float
    data: bytes  # their text
    covers: bool  # whether it has all of the target
    begun: int = 0  # bytes at the end of the text that are no whole character yet

    @property
    def letters(self) -> bytes:
        """Bytes of the word so far."""
        return self.data.lstrip(b" \t\r\n")

    @property
    def key(self) -> bytes:
        """Bytes of the word so far, without what may not belong to it: closing punctuation, half a
        character.
        """
        letters = self.letters[: len(self.letters) - self.begun]
        return letters.rstrip(_CLOSING) or letters


@dataclass(slots=True)
class _Followers:
    """The pieces after a beginning, most probable first."""

    of: _Beginning
    pieces: list[int]
    adapted: list[float]
    base: list[float]
    beyond: float  # probability of any text that goes on with pieces that are not kept, at most
    depth: int  # most pieces that begin with one another
    allowed: Tensor  # (V,) bool pieces that neither end a word that was counted nor make no text
    at: int = 0  # those before were made beginnings,
    taken: set[int] = field(default_factory=set)  # and these pieces, out of turn
    _places: dict[int, int] = field(default_factory=dict)

    @property
    def unseen(self) -> float:
        """Probability of any text that goes on with pieces that are no beginnings yet, at most."""
        if self.at == len(self.pieces):
            return self.beyond
        return self.beyond + self.depth * self.adapted[self.at]

    def left(self, pieces: Sequence[int]) -> list[int]:
        """Return the places of those of some pieces that are no beginnings yet."""
        if not self._places:
            self._places = {piece: place for place, piece in enumerate(self.pieces)}
        places = (self._places.get(piece) for piece in pieces if piece not in self.taken)
        return [place for place in places if place is not None and place >= self.at]


@dataclass(slots=True)
class _Word:
    """A word that was found: the probabilities of the ways to write it."""

    adapted: float = 0.0
    base: float = 0.0
    first: dict[int, float] = field(default_factory=dict)  # by first piece
    ways: dict[str, float] = field(default_factory=dict)  # by text, with the spaces before the word


@dataclass(frozen=True, slots=True)
class FoundWords:
    """The most probable words.

    Args:
        words: most probable first.
        bound: probability of any other word, at most.
        exact: whether the search ended by itself; then no other word belongs to the list, in any
            place.
    """

    words: list[Expected]
    bound: float
    exact: bool


class WordSearch:
    """Search of the most probable words at a place.

    A word ends before a space, a line break or the end of the text. Its probability is the product
    of its pieces', times that of such an end. Ways to write the same word add up, and so do forms
    that differ only in punctuation that follows. Where letters are given, all probabilities are
    those among the texts that begin with them.

    Args:
        expect: returns log-probabilities (R, V) in nats after R rows of pieces, adapted and not.
        pieces: what each piece does to the text before it.
        place: what the words begin with.
    """

    def __init__(self, expect: Expect, pieces: PieceTexts, place: Place) -> None:
        self._expect, self._pieces, self._place = expect, pieces, place
        self.rows = 0  # beginnings that the model read
        # probability of the target, adapted and not, as far as it is known
        self.covered = [0.0, 0.0]
        self._words: dict[str, _Word] = {}
        self._open: dict[tuple[int, ...], _Beginning] = {}
        self._followers: dict[tuple[int, ...], _Followers] = {}
        self._by_key: dict[bytes, list[_Followers]] = {}
        self._least = 0.0  # probability that a word needs to be listed, as far as it is known
        self._long: list[_Beginning] = []  # longer than any word; never followed
        if not place.target:
            self.covered = [1.0, 1.0]
        root = _Beginning((), 1.0, 1.0, b"", not place.target)
        self._first: list[float] = []  # (V,) probability of each first piece, adapted
        self._follow([root])

    def find(self, n: int, effort: SearchEffort = THOROUGH) -> FoundWords:
        """Return the n most probable words.

        A word less probable than ``effort.least`` is not looked for, nor is so small a part of one.
        """
        least, spent = effort.least, None
        if effort.budget is not None:
            spent = self.rows + effort.budget
        bound, wanted = self._unsettled(n, least)
        while wanted is not None and self.rows != spent and self._go_on(wanted, spent, least):
            bound, wanted = self._unsettled(n, least)
        exact = wanted is None
        if exact and least > LEAST:
            exact = self._unsettled(n, LEAST)[1] is None
        return FoundWords(self._best(n), self._share(self._unlisted(n, bound)), exact)

    def follow(self, ids: Sequence[int]) -> None:
        """Follow a row of pieces, whatever its probability, so that the word that it writes is
        found.

        ``expect`` has to remember what it gave: it is asked for all of the row, and then for each
        part.
        """
        rows = [tuple(ids[:at]) for at in range(len(ids) + 1)]
        self._expect(rows)  # read together
        for row in rows[1:]:
            before = self._followers.get(row[:-1])
            if before is None or not before.allowed[row[-1]]:  # the word has ended
                return
            if row not in self._followers and row not in self._open:
                adapted, base = (
                    float(part[0, row[-1]].double().exp()) for part in self._expect([row[:-1]])
                )
                before.taken.add(row[-1])
                self._add_beginning(
                    before.of, row[-1], before.of.adapted * adapted, before.of.base * base
                )
            if row in self._open:
                self._follow([self._open[row]])

    def rank(self, word: str, n: int, budget: int | None = None) -> int | None:
        """Return the rank of a word that was found among all words, None if it is below n.

        Without budget for more, what was not found counts as less probable than the word.
        """
        spent = None if budget is None else self.rows + budget
        word_found = self._words.get(word)
        while word_found is not None:
            left = self._weights()
            most, bound = word_found.adapted + self._more(left, word), self._bound(left)
            if sum(other.adapted > most for other in self._words.values()) >= n:
                return None
            close = [
                name
                for name, other in self._words.items()
                if other is not word_found and other.adapted <= most
                if other.adapted + bound > word_found.adapted
                and other.adapted + self._more(left, name) > word_found.adapted
            ]
            settled = bound <= word_found.adapted and not close
            if (
                settled
                or self.rows == spent
                or not self._go_on([word, *close] if bound <= word_found.adapted else [], spent)
            ):
                rank = 1 + sum(other.adapted > word_found.adapted for other in self._words.values())
                return rank if rank <= n else None
        return None

    def probability(self, word: str) -> float:
        """Return the probability of a word, as far as it is known."""
        word_found = self._words.get(word)
        return 0.0 if word_found is None else self._share(word_found.adapted)

    def _share(self, adapted: float) -> float:
        return adapted / self.covered[0] if self.covered[0] else adapted

    def _unlisted(self, n: int, bound: float) -> float:
        """Return the most that a word after the first n can have; ``bound`` holds for those that
        were not found.
        """
        left, largest = self._weights(), bound
        for name, word in self._ordered()[n:]:
            if word.adapted + bound <= largest:  # so are all words after it
                break
            largest = max(largest, word.adapted + self._more(left, name))
        return largest

    def _best(self, n: int) -> list[Expected]:
        return [
            self._expected(name, word) for name, word in self._ordered()[:n] if word.adapted > 0
        ]

    def _ordered(self) -> list[tuple[str, _Word]]:
        return sorted(self._words.items(), key=lambda item: (-item[1].adapted, item[0]))

    def _expected(self, name: str, word: _Word) -> Expected:
        adapted, base = self.covered
        way = max(word.ways, key=lambda text: (word.ways[text], text))
        rest = {
            first: share / self._first[first] / (adapted or 1.0)
            for first, share in word.first.items()
        }
        suggestion = Suggestion(
            name, word.adapted / (adapted or 1.0), word.base / (base or 1.0), way
        )
        return Expected(suggestion, rest)

    def _unsettled(self, n: int, floor: float) -> tuple[float, list[str] | None]:
        """Return the most that a word not found can have, and the words to look after, none for
        any, None at the end.

        Without any the most probable beginnings are to be followed. What is less probable than the
        floor is not looked for.
        """
        floor *= self.covered[0]
        left, ordered = self._weights(), self._ordered()
        bound = self._bound(left)
        self._least = least = ordered[n - 1][1].adapted if len(ordered) >= n else 0.0
        if bound > max(least, floor):
            return bound, []
        if sum(
            beginning.adapted for beginning in self._open.values() if not beginning.covers
        ) > max(TOLERANCE * self.covered[0], floor):
            return bound, []
        more = {
            name: self._more(left, name) for name, word in ordered if word.adapted + bound >= least
        }  # what each may still gain
        unsettled: list[str] = []
        for at, (name, word) in enumerate(ordered[:n]):
            rivals = [
                other
                for other, beginning in ordered[at + 1 :]
                if beginning.adapted + more.get(other, 0.0) > word.adapted
            ]
            largest = max(more.get(other, 0.0) for other in (name, *rivals))
            if largest > floor and (rivals or more[name] > TOLERANCE * word.adapted):
                unsettled += [name, *rivals]
        return bound, unsettled or None

    def _weights(self) -> dict[bytes, float]:
        """Return the probability of the beginnings that were not followed, by their letters."""
        weights: dict[bytes, float] = {}
        for beginning in (*self._open.values(), *self._long):
            weights[beginning.key] = weights.get(beginning.key, 0.0) + beginning.adapted
        return weights

    def _bound(self, left: Mapping[bytes, float]) -> float:
        """Return the most that is left of all beginnings of any word, given :meth:`_weights`."""
        bounds = dict(left)
        for row in self._followers.values():
            if (unseen := row.unseen) > 0:
                bounds[row.of.key] = bounds.get(row.of.key, 0.0) + unseen
        largest, above = 0.0, list[tuple[bytes, float]]()
        for key in sorted(bounds):
            while above and not key.startswith(above[-1][0]):
                above.pop()
            above.append((key, bounds[key] + (above[-1][1] if above else 0.0)))
            largest = max(largest, above[-1][1])
        return largest

    def _more(self, left: Mapping[bytes, float], name: str) -> float:
        """Return the most that is left of all beginnings of a word, given :meth:`_weights`."""
        word = name.encode()
        more = sum(left.get(word[:count], 0.0) for count in range(len(word) + 1))
        for row in self._rows_towards(word):
            if row.of.begun:  # any character may end the word before it
                more += row.unseen
            else:
                more += row.beyond + sum(
                    row.adapted[at] for at in row.left(self._pieces_towards(row.of, word))
                )
        return more

    def _rows_towards(self, word: bytes) -> list[_Followers]:
        keys = {word[:count] for count in range(len(word) + 1)}
        return [row for key in keys for row in self._by_key.get(key, ())]

    def _pieces_towards(self, of: _Beginning, word: bytes) -> list[int]:
        """Return pieces that go on from a beginning to a word, or to punctuation after it."""
        left = word[len(of.letters) :] if word.startswith(of.letters) else b""
        return self._pieces.parts(left, stripped=not of.letters)

    def _go_on(self, words: Sequence[str], spent: int | None, least: float = LEAST) -> bool:
        """Follow the most probable beginnings of some words, or of any; return whether there was
        one.

        Args:
            words: the words; none for any.
            spent: number of beginnings that may have been followed then; None for any number.
            least: probability of what is not looked for.
        """
        for word in map(str.encode, words):
            for row in self._rows_towards(word):
                if row.of.begun and row.at < len(row.pieces):
                    self._begin(row, row.adapted[row.at] / 4)
                for at in row.left(self._pieces_towards(row.of, word)):
                    row.taken.add(row.pieces[at])
                    self._add_beginning(row.of, row.pieces[at], row.adapted[at], row.base[at])
        ready = [
            beginning
            for beginning in self._open.values()
            if not words or _leads(beginning.key, words)
        ]
        ready = sorted(ready, key=lambda one: -one.adapted)[:AT_ONCE]
        best = ready[0].adapted if ready else 0.0
        hidden = [
            row for row in self._followers.values() if not words and row.unseen - row.beyond > best
        ]
        largest = max([best, *(row.unseen - row.beyond for row in hidden)])
        if largest <= max(least * self.covered[0], 0.0 if words else TOLERANCE * self._least):
            # what is left lies in words that are too long, or among pieces that were not kept
            return False
        for row in hidden:
            self._begin(row, row.adapted[row.at] / 4)
        # Beginnings that are almost as probable as the best will be followed anyway: the model
        # reads them together.
        if not hidden and ready:
            most = AT_ONCE if spent is None else min(AT_ONCE, spent - self.rows)
            self._follow([beginning for beginning in ready[:most] if beginning.adapted >= best / 4])
        return bool(hidden or ready)

    def _follow(self, beginnings: Sequence[_Beginning]) -> None:
        if not beginnings:
            return
        adapted, base = (
            part.double().exp().cpu()
            for part in self._expect([beginning.ids for beginning in beginnings])
        )
        for beginning, *probabilities in zip(beginnings, adapted, base, strict=True):
            self._open.pop(beginning.ids, None)
            self.rows += 1 if beginning.ids else 0
            self._read(beginning, *probabilities)

    def _read(self, start: _Beginning, adapted: Tensor, base: Tensor) -> None:
        """Take in the probabilities (V,) of the pieces after a beginning."""
        pieces, place = self._pieces, self._place
        if not start.ids:
            self._first = adapted.tolist()
        adapted, base = start.adapted * adapted, start.base * base
        text = decoded(start.data[place.given :]) if start.covers else None
        allowed = ~pieces.never
        if text is not None:
            allowed = allowed & (pieces.continuing if text.partial else ~pieces.continuing)
        if text is None:
            letters = start.data.lstrip(b" \t") if place.stripped else start.data
            covering, beginning = pieces.towards(
                place.target[len(letters) :], stripped=place.stripped and not letters
            )
            allowed = allowed & (covering | beginning)
            self.covered[0] += float(adapted[allowed & covering].sum())
            self.covered[1] += float(base[allowed & covering].sum())
        elif not text.partial:
            word = first_word(text.text)
            if word is None:
                self._add("\n", "\n", start, adapted, base, pieces.breaks & ~pieces.never)
                allowed = allowed & ~pieces.breaks
            else:
                ends = pieces.ends_after(is_unspaced(word.text[-1]))
                self._add(word.text, text.text, start, adapted, base, ends)
                allowed = allowed & ~ends
        if place.new and not start.ids:
            open_ = pieces.spaces | pieces.unspaced | pieces.incomplete
            allowed = allowed & (torch.ones_like(open_) if place.unspaced else open_)
        allowed_mass = torch.where(allowed, adapted, 0.0)
        kept = allowed_mass.topk(min(KEPT, len(allowed_mass)))
        count = int((kept.values > 0).sum())
        rest = float(allowed_mass.sum() - kept.values.sum()) if len(allowed_mass) > KEPT else 0.0
        beyond = min(max(rest, 0.0), pieces.depth * float(kept.values[-1]))
        at = kept.indices[:count]
        row = _Followers(
            start,
            at.tolist(),
            kept.values[:count].tolist(),
            base[at].tolist(),
            beyond,
            pieces.depth,
            allowed,
        )
        self._followers[start.ids] = row
        self._by_key.setdefault(start.key, []).append(row)
        if count:
            self._begin(row, max(row.adapted[0] / 16, self._least / (4 * pieces.depth)))

    def _add(
        self, word: str, text: str, of: _Beginning, adapted: Tensor, base: Tensor, ends: Tensor
    ) -> None:
        """Add a way to write a word, with all pieces (V,) that end it."""
        ways, plain = float(adapted[ends].sum()), float(base[ends].sum())
        if of.ids:
            self._found(word, text, of.ids[0], ways, plain)
        else:  # each piece is a first one
            for index in (ends & (adapted > 0)).nonzero()[:, 0].tolist():
                self._found(word, text, index, float(adapted[index]), float(base[index]))

    def _found(self, word: str, text: str, first: int, adapted: float, base: float) -> None:
        if adapted <= 0:
            return
        core = without_closing(word)
        known = self._words.setdefault(core, _Word())
        known.adapted += adapted
        known.base += base
        known.first[first] = known.first.get(first, 0.0) + adapted
        way = text[: len(text) - (len(word) - len(core))] if text.endswith(word) else text
        known.ways[way] = known.ways.get(way, 0.0) + adapted

    def _begin(self, row: _Followers, least: float) -> None:
        """Make beginnings of the pieces after another one that have some probability."""
        while row.at < len(row.pieces) and row.adapted[row.at] >= least:
            at, row.at = row.at, row.at + 1
            if row.pieces[at] not in row.taken:
                self._add_beginning(row.of, row.pieces[at], row.adapted[at], row.base[at])

    def _add_beginning(self, of: _Beginning, index: int, adapted: float, base: float) -> None:
        place, ids = self._place, (*of.ids, index)
        data = of.data + self._pieces.data[index]
        letters = data.lstrip(b" \t") if place.stripped else data
        covers = of.covers or letters.startswith(place.target)
        if covers:
            text = decoded(data[place.given :])
            if text is None or not self._may_begin(text.text):
                return  # no text has these bytes, or they go on with the word before
            word = first_word(text.text)
            if word is not None and word.ended:
                self._found(word.text, text.text[: word.end], ids[0], adapted, base)
                return
        whole = decoded(data)
        begun = len(data) - len(whole.text.encode()) if whole is not None and whole.partial else 0
        beginning = _Beginning(ids, adapted, base, data, covers, begun)
        if len(ids) > MAX_WORD_PIECES:
            self._long.append(beginning)
        else:
            self._open[ids] = beginning

    def _may_begin(self, text: str) -> bool:
        """Return whether a text may stand at the place: it does not go on with a word before that
        has ended.
        """
        place = self._place
        return not place.new or place.unspaced or not text or text[0].isspace() or is_unspaced(text)


def _leads(key: bytes, words: Sequence[str]) -> bool:
    """Return whether letters are the beginning of one of some words."""
    return any(word.encode().startswith(key) for word in words)


def words_ahead(
    expect: Expect,
    pieces: PieceTexts,
    n: int,
    place: Place,
    effort: SearchEffort = THOROUGH,
) -> FoundWords:
    """Return the n most probable words at a place; see :class:`WordSearch`.

    In a script without spaces a word is a run of graphemes that goes on while what follows is
    likelier than not; a dictionary, where one is installed, then says where the first word of the
    run ends.
    """
    search = WordSearch(expect, pieces, place).find(n, effort)
    return FoundWords(
        [_run(expect, pieces, word) for word in search.words], search.bound, search.exact
    )


MAX_RUN = 16  # graphemes


def _run(expect: Expect, pieces: PieceTexts, first: Expected) -> Expected:
    """Return a grapheme of a script without spaces with those that follow it more likely than
    not.
    """
    if not is_unspaced(first.suggestion.word):
        return first
    parts = [first.suggestion]
    text = first.suggestion.insert_text
    while len(parts) < MAX_RUN:
        size = len(text.encode())
        following = WordSearch(expect, pieces, Place(text.encode(), size)).find(1).words
        if (
            not following
            or following[0].suggestion.probability <= 0.5
            or not is_unspaced(following[0].suggestion.word)
        ):
            break
        parts.append(following[0].suggestion)
        text += parts[-1].insert_text
    words = separated("".join(part.word for part in parts))
    ends = len(words) > 1
    if ends:
        count = next(
            at
            for at in range(1, len(parts))
            if sum(len(part.word) for part in parts[:at]) >= len(words[0])
        )
        parts = parts[:count]
    more = math.prod(part.probability for part in parts[1:])
    suggestion = Suggestion(
        "".join(part.word for part in parts),
        first.suggestion.probability * more,
        math.prod(part.unadapted for part in parts),
        "".join(part.insert_text for part in parts),
        ends=ends,
    )
    return Expected(suggestion, {piece: share * more for piece, share in first.rest.items()})
