"""What the shop promises."""

from django.contrib.auth.models import User
from django.test import AsyncClient, TestCase, TransactionTestCase

from semel.django.inbox import Message, Outcome
from shop.inbox import bill
from shop.models import Invoice, Order


class Ordering:
    def setUp(self):
        self.user = User.objects.create_user("anna")
        self.client.force_login(self.user)

    def post(self, key, item, path="/orders"):
        return self.client.post(path, {"item": item}, headers={"Idempotency-Key": key})

    def test_an_order_that_is_repeated_is_made_once(self):
        for path in ("/orders", "/orders/async"):
            first, again = (self.post(path, f"a pen at {path}", path) for _ in range(2))
            assert (first.status_code, first.json()) == (201, again.json())
            assert again.headers["Idempotency-Replayed"] == "true"
            assert self.post(path, "another one", path).status_code == 422
        assert Order.objects.count() == 2

    def test_a_refusal_is_kept_and_a_failure_is_not(self):
        self.post("k-1", "a pen")
        assert self.post("k-2", "a pen").json() == {"problem": "taken"}
        self.client.raise_request_exception = False
        assert self.post("k-3", "a pen", "/orders/async").status_code == 500
        Order.objects.all().delete()
        assert self.post("k-3", "a pen", "/orders/async").status_code == 201
        assert self.post("k-2", "a pen").json() == {"problem": "taken"}

    def test_a_stranger_gets_no_answer_of_others(self):
        self.post("k-1", "a pen")
        self.client.logout()
        assert self.post("k-1", "a pen").status_code == 400

    def test_an_event_that_comes_twice_is_billed_once(self):
        event = Message("orders", 0, 0, b"1", b"a pen")
        assert [bill.take(event), bill.take(event)] == [Outcome.ACCEPTED, Outcome.DUPLICATE]
        assert Invoice.objects.count() == 1

    async def test_an_order_is_made_once_under_asgi(self):
        client = AsyncClient()
        await client.aforce_login(self.user)
        for path in ("/orders", "/orders/async"):
            order = {"path": path, "data": {"item": f"a pen at {path}"}, "headers": {"Idempotency-Key": path}}
            first, again = [await client.post(**order) for _ in range(2)]
            assert (first.status_code, first.json()) == (201, again.json())
            assert again.headers["Idempotency-Replayed"] == "true"
        assert await Order.objects.acount() == 2


class InATransaction(Ordering, TestCase):
    pass


class WithCommits(Ordering, TransactionTestCase):
    pass
