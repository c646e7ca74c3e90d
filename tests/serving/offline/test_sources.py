"""Archives are hostile until proved otherwise: nothing is unpacked, and no member costs more than its limit."""

import io
import tarfile

from headrace.serving.offline.sources import tar_images


def read(path, limit=1000):
    return [(image.name, image.data, image.error) for image in tar_images(str(path), path.name, (".jpg",), limit)]


def test_only_files_with_such_a_suffix_count_and_links_are_rows(tmp_path):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        kinds = {"d": tarfile.DIRTYPE, "l": tarfile.SYMTYPE, "h": tarfile.LNKTYPE, "p": tarfile.FIFOTYPE}
        for name, kind in kinds.items():
            info = tarfile.TarInfo(f"{name}.jpg")
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
        for name in ("x/._y.jpg", "x/y.json", "../../up.jpg", "/abs.JPG", "x/y.jpg", "x/y.jpg"):
            info = tarfile.TarInfo(name)
            info.size = 2
            archive.addfile(info, io.BytesIO(b"ab"))
    link = "the archive holds only a link to /etc/passwd, which is not followed"
    assert read(path) == [
        ("a.tar/l.jpg", None, link),
        ("a.tar/h.jpg", None, link),
        *((f"a.tar/{name}", b"ab", None) for name in ("../../up.jpg", "/abs.JPG", "x/y.jpg", "x/y.jpg")),
    ]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a.tar"]


def test_a_member_beyond_the_limit_is_not_read(tmp_path):
    path = tmp_path / "a.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, size in (("bomb.jpg", 1_000_000), ("good.jpg", 3)):
            info = tarfile.TarInfo(name)
            info.size = size
            archive.addfile(info, io.BytesIO(b"\0" * size))
    assert path.stat().st_size < 100_000
    assert read(path) == [
        ("a.tar.gz/bomb.jpg", None, "the file has 1000000 bytes, more than 1000"),
        ("a.tar.gz/good.jpg", b"\0\0\0", None),
    ]


def test_what_is_damaged_or_gone_is_one_more_row(tmp_path):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        for name in ("1.jpg", "2.jpg"):
            info = tarfile.TarInfo(name)
            info.size = 900
            archive.addfile(info, io.BytesIO(b"x" * 900))
    whole = path.read_bytes()
    # In the second member, in its header, and between the two, where tarfile itself sees nothing wrong.
    for length, says in ((2500, "damaged after 1 images"), (2000, "without its end mark"), (1536, "without its end mark")):
        path.write_bytes(whole[:length])
        first, last = read(path)
        assert (first[0], first[2]) == ("a.tar/1.jpg", None)
        assert last[0] == "a.tar"
        assert says in last[2], length
    path.write_bytes(whole)
    assert [error for _, _, error in read(path)] == [None, None]
    path.unlink()
    assert read(path) == [("a.tar", None, "the archive cannot be read: No such file or directory")]
