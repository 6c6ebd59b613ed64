#!/usr/bin/env python3
"""The list of messages is up to date. check_prose.py finds planted faults, and nothing in allowed text."""

import pathlib
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "tools"))
import check_prose  # noqa: E402
import messages  # noqa: E402

LONG = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty " \
       "more words than anyone can read at once and still more"


class Messages(unittest.TestCase):
    def test_the_list_is_that_of_the_sources(self):
        listed = (SOURCE / "tests/tools/messages.txt").read_text(encoding="utf-8").splitlines()
        now = messages.listing().splitlines()
        new, gone = [line for line in now if line not in listed], [line for line in listed if line not in now]
        self.assertEqual(now, listed, "messages changed: read them again, then `tools/messages.py > tests/tools/messages.txt`\nnew:  "
                         + "\n      ".join(new) + "\ngone: " + "\n      ".join(gone))

    def said(self, code, suffix=".cpp"):
        with tempfile.NamedTemporaryFile("w", suffix=suffix) as file:
            file.write(code)
            file.flush()
            return [text for _, text in messages.messages(pathlib.Path(file.name))]

    def test_what_is_a_message(self):
        self.assertEqual(self.said('throw Error("the file \'" + name + "\' cannot be read: " + why());'), ["the file '{}' cannot be read: {}"])
        self.assertEqual(self.said('say("one part of a long "\n    "message on two lines");'), ["one part of a long message on two lines"])
        self.assertEqual(self.said('text += bad ? "this one is very bad" : "and this one is not";'), ["this one is very bad", "and this one is not"])
        self.assertEqual(self.said('f(fmt::format("{}: has {} bytes; expected {} of them", a, b, c));'), ["{}: has {} bytes; expected {} of them"])
        self.assertEqual(self.said('// "not a message in a comment"\n#include "a/b/c d e f.hpp"\nconst char quote = \'"\'; call("two words");'), [])
        self.assertEqual(self.said('out << R"(a raw string of words)" << x;'), ["a raw string of words"])
        self.assertEqual(self.said('"""A docstring of many words."""\nraise Refused(f"{file}: is not a model of ours")\nprint("four words are enough")\nlib.name.of.modules', ".py"),
                         ["{}: is not a model of ours", "four words are enough"])


class Prose(unittest.TestCase):
    def found(self, name, text):
        with tempfile.TemporaryDirectory(dir=SOURCE / "build" if (SOURCE / "build").is_dir() else None) as folder:
            file = pathlib.Path(folder) / name
            file.write_text(text, encoding="utf-8")
            return [reason for _, reason in check_prose.faults(file)]

    def test_long_sentences_are_found_in_every_kind_of_file(self):
        for name, text in (("a.md", LONG + "."), ("a.md", "| a | " + LONG + " |"), ("a.md", "- " + LONG), ("a.cpp", "// " + LONG), ("a.hpp", f"int x;  ///< {LONG}"),
                           ("a.py", f'"""{LONG}"""'), ("a.py", "# " + LONG), ("a.sh", "# " + LONG), ("a.yaml", "# " + LONG),
                           ("a.cpp", "// " + LONG[:70] + "\n// " + LONG[70:])):
            with self.subTest(name=name, text=text[:20]):
                self.assertEqual(len(self.found(name, text)), 1)

    def test_code_and_short_sentences_are_not(self):
        for name, text in (("a.md", f"Text.\n\n    {LONG}\n"), ("a.md", f"```\n{LONG}\n```"), ("a.md", f"`{LONG}` is one word."), ("a.md", "Short. " * 30),
                           ("a.md", f"[a link]({LONG.replace(' ', '/')})"), ("a.cpp", "int " + ", ".join(LONG.split()) + ";")):
            with self.subTest(name=name, text=text[:20]):
                self.assertEqual(self.found(name, text), [])

    def test_banned_words_are_found_with_the_standard_one(self):
        for word, instead in (("mended", "fix"), ("reckons", "estimate"), ("told apart", "distinguish"), ("stands in", "is in"), ("goes on", "continue"),
                              ("least score", "minimum")):
            with self.subTest(word):
                (reason,) = self.found("a.md", f"This {word} of it.")
                self.assertIn(word, reason)
                self.assertIn(instead, reason)
        self.assertEqual(self.found("a.md", "It stands in for it, at least one, at most pictures of `goes on`."), [])


if __name__ == "__main__":
    unittest.main()
