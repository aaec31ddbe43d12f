"""The mail catcher of the demo: one copy a Message-ID, and an honest count of the others."""

import smtplib

import pytest

from demo.catcher import delivered
from tests.example.callers import Mailer


def test_every_message_id_is_delivered_once(mailer: Mailer) -> None:
    """Further copies are not delivered, and are counted apart."""
    for message_id, order in (("<a@x>", 1), ("<b@x>", 2), ("<a@x>", 1), ("<a@x>", 1)):
        mailer.send(message_id, order=order)
    mails = {mail.message_id: mail for mail in delivered(mailer.box)}
    assert {name: mail.repeats for name, mail in mails.items()} == {"<a@x>": 2, "<b@x>": 0}
    assert mails["<b@x>"].order_id == 2
    assert mails["<a@x>"].attachments == 1


def test_a_second_mail_for_one_order_shows(mailer: Mailer) -> None:
    """Two Message-IDs for one order are two mails: a sender whose key changes can't hide."""
    mailer.send("<a@x>", order=1)
    mailer.send("<b@x>", order=1)
    assert [mail.order_id for mail in delivered(mailer.box)] == [1, 1]


def test_a_mail_without_message_id_is_refused(mailer: Mailer) -> None:
    """What can't be told from its copies is not taken."""
    with pytest.raises(smtplib.SMTPDataError):
        mailer.send("")
    assert delivered(mailer.box) == []
