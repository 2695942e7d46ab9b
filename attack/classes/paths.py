"""Paths that lead out of the root, past a location, or to the source of a program."""

from harness.attack import PHP, PROXY, STATIC, attack, each, require
from harness.sandbox import SECRET

PARENTS = ("..", "%2e%2e", "%2E.", ".%2e", "..;", "%252e%252e", "....", "%c0%ae%c0%ae", "%e0%80%ae%e0%80%ae", "%uff0e%uff0e", "..%00", "..\\")
SLASHES = ("/", "%2f", "%5c", "\\", "%252f", "//", "/./", "%c0%af")


def without(target, paths, secret=SECRET, host="localhost"):
    """No path may lead to the secret."""

    def judge(path):
        response = target.get(path, host=host)
        return f"status {response.status} with what nobody may see" if secret in response else None

    return each(paths, lambda cases: target.judge_each(cases, judge))


@attack("`..` in every spelling", "CWE-22, CVE-2021-41773", [STATIC])
def parents(target):
    roots = ("/", "/files/", "/files/..", "//", "/docs")
    paths = [f"{root}{parent}{slash}{name}" for root in roots for parent in PARENTS for slash in SLASHES for name in ("a.txt", "outside/a.txt")]
    more = [f"/{(parent + slash) * 8}etc/passwd" for parent in PARENTS for slash in SLASHES]
    evidence = without(target, paths)
    without(target, more, "root:x:0")
    return evidence.replace(str(len(paths)), str(len(paths) + len(more)))


@attack("Symbolic links out of the root", "CWE-59", [STATIC])
def links(target):
    evidence = without(target, ["/link.txt", "/out/a.txt", "/out/", "/out"])
    without(target, ["/passwd"], "root:x:0")
    return evidence


@attack("Files whose names start with a dot", "CWE-538", [STATIC])
def hidden(target):
    return without(target, ["/.env", "/%2eenv", "/.git/config", "/%2egit/config", "/./.env", "/files/../.env", "/.htaccess"])


@attack("The server's own files, where the root is the folder of its configuration", "CWE-538, CWE-552", [STATIC])
def own_files(target):
    names = ["localhost.key", "only.test.key", "linked.key", "apus.toml", "nginx.conf", "linked.toml", "linked.conf", "access.log",
             "access-nginx.log"]
    paths = [form.format(name) for name in names for form in ("/{}", "//{}", "/site/../{}", "/./{}", "/%2e/{}")]

    def judge(path):
        for method, field in (("GET", ""), ("GET", "Range: bytes=0-2000\r\n"), ("GET", "Accept-Encoding: identity\r\n")):
            response = target.get(path, field, method=method, host="whole.test")
            found = [mark for mark in ("PRIVATE KEY", "[[sites]]", "worker_processes", "127.0.0.1 /") if mark in response]
            if found:
                return f"status {response.status} with {found[0]}"
        return None

    return each(paths, lambda cases: target.judge_each(cases, judge))


@attack("A prefix without its slash, behind an alias", "CWE-22 (\"alias traversal\")", [STATIC])
def alias(target):
    return without(target, ["/docs../private/a.txt", "/docs../../a.txt", "/docs../.env", "/docs%2e%2e/private/a.txt", "/docs..%2fprivate/a.txt"])


@attack("The same path selects the location and the file", "CWE-647", [STATIC])
def locations(target):
    return without(target, [
        "/private/a.txt", "//private/a.txt", "/./private/a.txt", "/%70rivate/a.txt", "/x/../private/a.txt", "/private//a.txt",
        "/private/./a.txt", "/private%2fa.txt", "/files/..%2fprivate/a.txt", "/PRIVATE/a.txt", "/private;x/a.txt", "/private\\a.txt",
        "http://localhost/private/a.txt", "/%2fprivate/a.txt", "/private/%2e/a.txt", "/x%2f..%2f/private/a.txt", "/private%00/a.txt",
    ])


@attack("A mapped prefix gives access to no other path", "CWE-22, CVE-2019-11043", [PROXY])
def mapped_prefix(target):
    def judge(pattern):
        token = target.token()
        target.get(pattern.replace("TOKEN", token))
        outside = [seen.target for seen in target.origin.seen(token) if not seen.target.startswith("/public/")]
        if outside:
            return f"the origin got a request for {outside[0].replace(token, 'TOKEN')}"
        led = [seen.target for seen in target.origin.seen(token) if "/../" in seen.target or seen.target.endswith("/..")]
        return f"the origin is left to resolve {led[0].replace(token, 'TOKEN')}" if led else None

    return each([
        "/mapped/TOKEN", "/%6dapped/TOKEN", "/mapped/../api/../mapped/TOKEN", "//mapped/TOKEN", "/./mapped/TOKEN", "/x/../mapped/TOKEN",
        "/mapped/x/../TOKEN", "/mapped/%2e%2e/mapped/TOKEN", "/mapped//TOKEN", "/%6d%61pped/x/../TOKEN",
    ], lambda cases: target.judge_each(cases, judge))


@attack("An encoded slash is handled in the same way, whatever precedes it", "CWE-647", [PROXY])
def encoded_slash(target):
    token = target.token()
    found = {}
    for pattern in ("/api/TOKEN%2fb", "/api/../api/TOKEN%2fb", "//api/TOKEN%2fb", "/api/./TOKEN%2fb", "/x/../api/TOKEN%2fb"):
        target.origin.forget()
        target.get(pattern.replace("TOKEN", token))
        seen = target.origin.seen(token)
        if seen:
            path = seen[0].target.lower().replace(token, "TOKEN")
            found[pattern] = path.rpartition("/api/")[2]
    forms = set(found.values())
    require(len(forms) < 2, "the origin sees " + ", ".join(f"{path} for {pattern}" for pattern, path in list(found.items())[:2]))
    return f"the origin sees {forms.pop()}" if forms else "refused"


@attack("The source of a program, and backups of it", "CWE-540", [PHP])
def source(target):
    return without(target, [
        "/source.php", "/source.php/", "/source.php/x", "/source.php/x.css", "/source.PHP", "/source%2ephp", "/source.ph%70",
        "/source.php%00.html", "/source.php%20", "/source.php.", "/source.php::$DATA", "/left.php~", "/left.php.bak", "/left.inc",
        "//source.php", "/./source.php",
    ], host="php.test")


@attack("An upload that runs as a program", "CVE-2019-11043, CWE-434", [PHP])
def uploads(target):
    def judge(path):
        response = target.get(path, host="php.test")
        # As a picture its source may be seen: it was uploaded.
        return "it ran" if "ran-an-upload" in response and "<?php" not in response else None

    return each([
        "/uploads/picture.jpg/x.php", "/uploads/picture.jpg%00.php", "/uploads/picture.jpg/.php", "/uploads/picture.jpg%2fx.php",
        "/uploads/picture.jpg;x.php", "/uploads/picture.jpg%0a.php", "/uploads/picture.jpg?x.php",
    ], lambda cases: target.judge_each(cases, judge))
