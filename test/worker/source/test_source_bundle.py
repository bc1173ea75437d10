"""Code bundles: fetched by their sha256, and unpacked safely."""

import contextlib
import gzip
import hashlib
import io
import os
import random
import stat
import tarfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from build import BUCKET, bucket
from gleaner_worker.jobs.prepared_code import SourceFailed
from gleaner_worker.source import bundle
from gleaner_worker.source.bundle import DAMAGED, unpack_archive, unpack_bundle
from memory import MIB, at_most


def archive_of(*members):
    """members: (name, content) or a TarInfo."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as tar:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                tar.addfile(member)
                continue
            name, content = member
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return data.getvalue()


def a_link(name, target, kind=tarfile.SYMTYPE):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.fixture
def unpack(storage, tmp_path):
    """unpack(data) stores the bundle under its sha256, or under `sha256`, and unpacks it."""

    def run(data, sha256=None):
        digest = sha256 or hashlib.sha256(data).hexdigest()
        storage.put(BUCKET, f"code/{digest}.tar.gz", data)
        return unpack_bundle(digest, str(tmp_path / "jobs"), bucket())

    return run


def test_a_bundle_is_unpacked_once_and_readable_by_every_user(unpack):
    data = archive_of(("./main.py", b"one"), ("./lib/deep.py", b"two"))
    folder = unpack(data)
    with open(f"{folder}/lib/deep.py", "rb") as file:
        assert file.read() == b"two"
    assert os.stat(f"{folder}/lib").st_mode & 0o777 == 0o755
    assert os.stat(f"{folder}/main.py").st_mode & 0o777 == 0o644
    assert unpack(data) == folder


def test_a_bundle_of_another_sha256_is_not_unpacked(unpack, tmp_path):
    with pytest.raises(SourceFailed, match=f"its sha256 is .*, not {'0' * 64}; upload the code again"):
        unpack(archive_of(("main.py", b"x")), "0" * 64)
    assert os.listdir(tmp_path / "jobs" / "bundles") == []


@pytest.mark.parametrize(
    "member",
    [
        ("../outside", b"x"),
        ("/etc/outside", b"x"),
        ("a/../../outside", b"x"),
        a_link("link", "/etc/passwd"),
        a_link("hard", "main.py", tarfile.LNKTYPE),
        a_link("pipe", "", tarfile.FIFOTYPE),
        ("main.py", b"twice"),
        ("main.py/below", b"x"),
        (".", b"the folder itself"),
    ],
)
def test_a_bundle_with_an_unsafe_member_is_refused(unpack, tmp_path, member):
    data = archive_of(("main.py", b"x"), member)
    with pytest.raises(SourceFailed, match=r"Failed to use gs://"):
        unpack(data)
    assert os.listdir(tmp_path) == ["jobs"] and os.listdir(tmp_path / "jobs" / "bundles") == []
    assert not os.path.exists("/etc/outside")


@pytest.mark.parametrize(
    "data",
    [b"", b"no archive", gzip.compress(b"no tar"), archive_of(("a", os.urandom(9999)))[:200]],
    ids=["empty", "text", "gzip", "cut"],
)
def test_a_damaged_bundle_is_refused_by_name(unpack, data):
    digest = hashlib.sha256(data).hexdigest()
    with pytest.raises(SourceFailed, match=f"code/{digest}.tar.gz"):
        unpack(data)


def test_a_bundle_with_damage_after_its_first_file_is_refused_by_name(unpack):
    data = bytearray(archive_of(("main.py", b"x"), ("noise", random.Random(1).randbytes(200_000).hex().encode())))
    data[100_000:105_000] = bytes(5_000)
    with pytest.raises(SourceFailed, match=r"Failed to use gs://"):
        unpack(bytes(data))


def test_a_missing_bundle_is_reported_by_name(storage, tmp_path):
    with pytest.raises(SourceFailed, match=r"code/1{64}.tar.gz"):
        unpack_bundle("1" * 64, str(tmp_path / "jobs"), bucket())


def a_header(kind, size):
    """A member of 512 bytes that states a content of `size` bytes, and as much content."""
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = kind, size
    return info.tobuf(tarfile.GNU_FORMAT) + bytes(size)


@pytest.mark.parametrize(
    ("kind", "size"),
    [(tarfile.GNUTYPE_LONGNAME, 64 * MIB), (tarfile.XHDTYPE, (64 << 10) + 512), (tarfile.XGLTYPE, (64 << 10) + 512)],
)
def test_a_bundle_with_a_long_name_or_many_facts_is_refused_in_little_memory(unpack, kind, size):
    data = gzip.compress(a_header(kind, size))
    with (
        at_most(8 * MIB),
        pytest.raises(SourceFailed, match=f"a name or extended facts of {size} bytes; the limit is"),
    ):
        unpack(data)


@pytest.mark.parametrize(("limit", "most"), [("MAX_TAR_FILES", 1), ("MAX_TAR_BYTES", 5)])
def test_a_bundle_over_a_limit_of_all_its_files_is_refused(unpack, tmp_path, monkeypatch, limit, most):
    monkeypatch.setattr(bundle, limit, most)
    with pytest.raises(SourceFailed, match=r"code/.*\.tar\.gz: it has more than .* files or .* bytes; leave files out"):
        unpack(archive_of(("a", b"one"), ("b", b"two")))
    assert os.listdir(tmp_path / "jobs" / "bundles") == []


def test_a_bundle_of_headers_inside_of_headers_is_the_fault_of_its_source(unpack):
    with pytest.raises(SourceFailed, match=r"Failed to use gs://.*recursion"):
        unpack(gzip.compress(a_header(tarfile.GNUTYPE_LONGNAME, 512) * 3000))


def test_a_bundle_with_facts_for_every_member_is_refused(unpack):
    data = io.BytesIO()
    facts = {f"fact{number}": "x" for number in range(200)}
    with tarfile.open(fileobj=data, mode="w:gz", format=tarfile.PAX_FORMAT, pax_headers=facts) as tar:
        tar.addfile(tarfile.TarInfo("main.py"), io.BytesIO())
    with pytest.raises(SourceFailed, match="'main.py' has more than 100 extended facts"):
        unpack(data.getvalue())


@settings(max_examples=settings().max_examples // 2)
@given(
    changes=st.lists(
        st.tuples(
            st.integers(0, 4095), st.sampled_from([b"\0", b"\xff" * 8, b"7" * 11, b"../", b"L", b"x", b"5", b"2"])
        ),
        min_size=1,
        max_size=4,
    ),
    end=st.integers(0, 4096),
)
def test_a_damaged_archive_is_unpacked_within_its_folder_or_refused(tmp_path_factory, changes, end):
    top = tmp_path_factory.mktemp("bundle")
    data = bytearray(
        gzip.decompress(archive_of(("main.py", b"one"), ("lib/deep.py", b"two" * 99), ("long/" * 40, b"")))[:4096]
    )
    for at, change in changes:
        data[at : at + len(change)] = change
    check_unpacking(top, bytes(data[: max(end, 512)]))


def check_unpacking(top, tar):
    """Unpacks below `top`, or is refused. Nothing is beside its folder, and no link or program with rights in it."""
    (top / "archive").write_bytes(gzip.compress(tar))
    (top / "folder").mkdir()
    with at_most(8 * MIB), contextlib.suppress(*DAMAGED):
        unpack_archive(str(top / "archive"), str(top / "folder"))
    assert sorted(os.listdir(top)) == ["archive", "folder"]
    for folder, folders, files in os.walk(top / "folder"):
        for name in folders + files:
            found = os.lstat(os.path.join(folder, name)).st_mode
            assert stat.S_ISREG(found) or stat.S_ISDIR(found)
            assert found & 0o7022 == 0


_names = st.lists(
    st.sampled_from(["a", "b", "..", ".", "", "/", "~", "a\n", "\x1b[31m", "\udcff", "n" * 90, "deep/" * 60]),
    max_size=3,
).map("/".join)
_facts = st.dictionaries(
    st.sampled_from(["path", "linkpath", "size", "uid", "mtime", "GNU.sparse.map", "GNU.sparse.size", "hdrcharset"]),
    st.sampled_from(["../x", "/tmp/planted", "a", "-1", "9" * 30, "0,1", "BINARY", ""]),
    max_size=2,
)


@st.composite
def _members(draw):
    info = tarfile.TarInfo(draw(_names))
    kinds = [tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE]
    info.type = draw(st.sampled_from([*kinds, tarfile.GNUTYPE_SPARSE, tarfile.CONTTYPE, b"Z"]))
    info.linkname = draw(_names)
    info.mode = draw(st.sampled_from([0, 0o644, 0o777, 0o6755, 0o1777]))
    info.size = draw(st.sampled_from([0, 1, 511, 1 << 20, 1 << 40]))
    info.pax_headers = draw(_facts)
    return info, draw(st.sampled_from([b"", b"x", b"y" * 1024]))


@settings(max_examples=settings().max_examples // 2)
@given(members=st.lists(_members(), max_size=5), kind=st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]))
def test_any_members_are_unpacked_within_their_folder_or_refused(tmp_path_factory, members, kind):
    tar = b"".join(
        info.tobuf(kind, errors="surrogateescape") + content + bytes(-len(content) % 512) for info, content in members
    )
    check_unpacking(tmp_path_factory.mktemp("bundle"), tar + bytes(1024))
    assert not os.path.exists("/tmp/planted")
