"""The shop's HTTP side: an order is the row and its jobs, or nothing at all."""

import re
from urllib.parse import urlencode

import pytest

from tests.example.site import Site

WISH = {"shop": 1, "product": 2, "quantity": 3, "email": "customer@mail.example"}
JOBS = "SELECT count(*) FROM celery_guard_job WHERE task LIKE 'shop.tasks.%' AND key IS NOT NULL"


def test_an_order_is_accepted_with_its_jobs(site: Site) -> None:
    """202 names the order, where to look, and every job by an id that the ledger knows."""
    answer = site.order(WISH)
    assert answer.status == 202
    jobs = answer.json["jobs"]
    assert isinstance(jobs, dict)
    assert set(jobs) == {"invoice", "charge", "search"}
    known = {str(row[0]) for row in site.rows("SELECT public_id FROM celery_guard_job")}
    assert set(jobs.values()) <= known
    state = site.get(answer.headers["Location"])
    assert state.json == {
        "order": answer.json["order"],
        "total_cents": 3 * 2400,
        "invoice": None,
        "mailed": False,
        "payment": None,
    }


def test_asking_again_under_the_same_key_is_the_same_order(site: Site) -> None:
    """A client that got no answer may ask again: one order, and the very same jobs."""
    first, again = site.order(WISH, "key-1").json, site.order(WISH, "key-1").json
    assert first["order"] == again["order"]
    assert isinstance(first["jobs"], dict)
    assert isinstance(again["jobs"], dict)
    assert again["jobs"] == {name: first["jobs"][name] for name in ("invoice", "charge")}


def test_a_key_is_bound_to_its_order(site: Site) -> None:
    """Another order under a used key is refused, and leaves neither order nor job."""
    site.order(WISH, "key-2")
    before = (site.rows("SELECT count(*) FROM shop_order"), site.rows(JOBS))
    assert site.order({**WISH, "quantity": 9}, "key-2").status == 409
    assert (site.rows("SELECT count(*) FROM shop_order"), site.rows(JOBS)) == before


@pytest.mark.parametrize(
    ("wish", "fault"),
    [
        ({**WISH, "email": "nobody"}, "email"),
        ({**WISH, "product": 999}, "product"),
        ({**WISH, "shop": [1]}, "shop"),
        ({**WISH, "quantity": 0}, "quantity"),
        ({**WISH, "quantity": "many"}, "quantity"),
        ({}, "email"),
        ([1, 2], "email"),
    ],
)
def test_a_bad_order_is_refused_and_leaves_nothing(site: Site, wish: object, fault: str) -> None:
    """400 names the fault; no order and no job is written."""
    before = (site.rows("SELECT count(*) FROM shop_order"), site.rows(JOBS))
    answer = site.order(wish)
    assert answer.status == 400
    assert isinstance(answer.json["errors"], dict)
    assert fault in answer.json["errors"]
    assert (site.rows("SELECT count(*) FROM shop_order"), site.rows(JOBS)) == before


def test_what_is_not_json_is_refused(site: Site) -> None:
    """Rubbish in the body is the client's fault, not a crash."""
    assert site.post("/orders/", b"\xff{not json").status == 400


def test_what_is_not_there_is_404(site: Site) -> None:
    """Unknown orders, and files that are not made yet, are not found."""
    assert site.get("/orders/999999/").status == 404
    order = site.order(WISH).json["order"]
    assert site.get(f"/orders/{order}/invoice.pdf").status == 404
    assert site.get("/products/1/thumbnail.png").status == 404


def test_the_page_takes_orders_without_script(site: Site) -> None:
    """A person orders by a plain form and is shown the order; the page has no script."""
    page = site.get("/")
    assert page.status == 200
    assert b"<script" not in page.body
    token = re.search(rb'name="csrfmiddlewaretoken" value="(\w+)"', page.body)
    assert token is not None
    form = {**WISH, "csrfmiddlewaretoken": token[1].decode(), "email": "person@mail.example"}
    cookie = page.headers["Set-Cookie"].split(";")[0]
    kind = "application/x-www-form-urlencoded"
    answer = site.post("/", urlencode(form).encode(), **{"Cookie": cookie, "Content-Type": kind})
    assert answer.status == 302
    assert site.rows("SELECT count(*) FROM shop_order WHERE email = 'person@mail.example'") == [
        (1,)
    ]


def test_static_files_and_admin_are_served(site: Site) -> None:
    """One process is enough: the style sheet and the admin come from it too."""
    assert site.get("/static/shop/shop.css").status == 200
    assert site.get("/admin/login/").status == 200
