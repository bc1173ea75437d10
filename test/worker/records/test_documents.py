"""Long documents as chunks and as packed windows: no token is lost, and each sample has its line and chunk."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gleaner_worker.records.lines.select import Marks
from gleaner_worker.records.samples.documents import Cut, Document, SampleTokens, cut_documents
from gleaner_worker.records.samples.sample import Reject

BOS, EOS = 1, 2
lengths = st.lists(st.integers(1, 40), min_size=1, max_size=8)


def a_document(line, ids, assistant_mask=None):
    marks = None if assistant_mask is None else Marks(np.array(assistant_mask, np.uint8))
    return Document(line, line, np.array(ids, np.int32), len(ids), marks, "", f'{{"line":{line}}}')


def cut(documents, over_long, length, overlap=0, bos_id: int | None = BOS, eos_id: int | None = EOS):
    return list(cut_documents(documents, Cut(over_long, length, overlap, bos_id, eos_id)))


def shown(samples):
    return [(sample.line, sample.chunk, sample.token_ids.tolist()) for sample in samples]


@pytest.mark.parametrize(
    ("ids", "overlap", "expected"),
    [
        ([5, 6, 7], 0, [[5, 6, 7]]),
        ([5, 6, 7, 8], 0, [[5, 6, 7, 8]]),
        ([5, 6, 7, 8, 9], 0, [[5, 6, 7, 8], [9]]),
        ([5, 6, 7, 8, 9, 10], 2, [[5, 6, 7, 8], [7, 8, 9, 10]]),
        ([5, 6, 7, 8, 9, 10, 11], 2, [[5, 6, 7, 8], [7, 8, 9, 10], [9, 10, 11]]),
        ([BOS, 5, 6, 7, 8], 0, [[BOS, 5, 6, 7], [BOS, 8]]),
        ([BOS, 5, 6, 7, 8, 9], 1, [[BOS, 5, 6, 7], [BOS, 7, 8, 9]]),
        ([BOS], 2, [[BOS]]),
    ],
)
def test_every_chunk_of_a_document_begins_with_its_bos_and_overlap(ids, overlap, expected):
    samples = cut([a_document(3, ids)], "chunk", 4, overlap)
    assert shown(samples) == [(3, number, chunk) for number, chunk in enumerate(expected)]
    assert {sample.kept for sample in samples} == {'{"line":3}'}


@given(lengths=lengths, length=st.integers(2, 16), overlap=st.integers(0, 14), has_bos=st.booleans())
def test_chunks_hold_every_token_once_except_for_bos_and_overlap(lengths, length, overlap, has_bos):
    overlap = min(overlap, length - 2)
    documents = [
        a_document(line, [BOS] * has_bos + list(range(100, 100 + size)), [False] * has_bos + [True] * size)
        for line, size in enumerate(lengths)
    ]
    samples = cut(documents, "chunk", length, overlap)
    for document in documents:
        own = [sample for sample in samples if sample.line == document.line]
        assert [sample.chunk for sample in own] == list(range(len(own)))
        assert all(len(sample.token_ids) <= length for sample in own)
        assert all((sample.token_ids[0] == BOS) == has_bos for sample in own)
        bodies = [sample.token_ids[has_bos:].tolist() for sample in own]
        assert bodies[0] + [token for body in bodies[1:] for token in body[overlap:]] == list(
            document.token_ids[has_bos:]
        )
        assert all(len(body) > overlap for body in bodies[1:])
        assert all(before[len(before) - overlap :] == body[:overlap] for before, body in pairwise(bodies))
        assert all(
            sample.marks.marked.tolist() == [False] * has_bos + [True] * len(body)
            for sample, body in zip(own, bodies, strict=True)
        )


@pytest.mark.parametrize(
    ("documents", "bos", "expected"),
    [
        ([[BOS, 5, 6], [BOS, 7]], BOS, [(0, 0, [BOS, 5, 6, BOS]), (1, 1, [BOS, 7])]),
        ([[BOS, 5, 6, 7, 8, 9, 10]], BOS, [(0, 0, [BOS, 5, 6, 7]), (0, 1, [BOS, 8, 9, 10])]),
        ([[BOS, 5, 6, 7], [BOS, 8]], BOS, [(0, 0, [BOS, 5, 6, 7]), (1, 0, [BOS, 8])]),
        ([[5, 6], [7, 8, 9, 10]], None, [(0, 0, [5, 6, EOS, 7]), (1, 1, [8, 9, 10, EOS])]),
        ([[5, EOS], [7]], None, [(0, 0, [5, EOS, 7, EOS])]),
    ],
)
def test_documents_are_packed_into_windows(documents, bos, expected):
    samples = cut([a_document(line, ids) for line, ids in enumerate(documents)], "pack", 4, bos_id=bos)
    assert shown(samples) == expected


@given(lengths=lengths, length=st.integers(2, 16), has_bos=st.booleans(), has_eos=st.booleans())
def test_windows_hold_every_token_once_with_its_line(lengths, length, has_bos, has_eos):
    documents = [
        a_document(line, [BOS] * has_bos + list(range(100, 100 + size)), [False] * has_bos + [True] * size)
        for line, size in enumerate(lengths)
    ]
    samples = cut(documents, "pack", length, bos_id=BOS if has_bos else None, eos_id=EOS if has_eos else None)
    assert all(len(sample.token_ids) == length for sample in samples[:-1]) and len(samples[-1].token_ids) <= length
    assert not has_bos or all(sample.token_ids[0] == BOS for sample in samples)
    ids, lines = (np.concatenate([getattr(each, name) for each in samples]) for name in ("token_ids", "token_lines"))
    marked = np.concatenate([sample.marks.marked for sample in samples])
    for document in documents:
        is_text = (lines == document.line) & (ids >= 100)
        assert ids[is_text].tolist() == [token for token in document.token_ids if token >= 100]
    assert (marked == (ids >= 100)).all()
    assert len({(sample.line, sample.chunk) for sample in samples}) == len(samples)
    assert all(sample.line == sample.token_lines[0] for sample in samples)


@pytest.mark.parametrize("over_long", ["chunk", "pack"])
def test_a_reject_keeps_its_place_between_documents(over_long):
    reject = Reject(1, "bad", 1)
    items = cut([a_document(0, [5] * 8), reject, a_document(2, [6] * 4)], over_long, 4, bos_id=None, eos_id=None)
    assert [item is reject for item in items] == [False, False, True, False]
    assert isinstance(items[3], SampleTokens) and items[3].line == 2
