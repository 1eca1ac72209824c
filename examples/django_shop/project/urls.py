"""The addresses of the shop."""

from django.contrib import admin
from django.urls import path

from shop import views

urlpatterns = [
    path("admin/", admin.site.urls),
    path("orders", views.order),
    path("orders/async", views.order_in_a_coroutine),
]
