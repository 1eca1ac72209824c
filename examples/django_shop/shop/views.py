"""Orders by HTTP."""

from asgiref.sync import sync_to_async
from django.db import IntegrityError, transaction
from django.http import JsonResponse

from semel.django import outbox
from shop.models import Order


def order(request):
    try:
        with transaction.atomic():
            made = Order.objects.create(item=request.POST["item"])
            outbox.add("orders", key=str(made.pk), value=made.item)
    except IntegrityError:
        return JsonResponse({"problem": "taken"}, status=409)
    return JsonResponse({"order": made.pk}, status=201)


async def order_in_a_coroutine(request):
    made = await Order.objects.acreate(item=request.POST["item"])
    await sync_to_async(outbox.add)("orders", key=str(made.pk), value=made.item)
    return JsonResponse({"order": made.pk}, status=201)
