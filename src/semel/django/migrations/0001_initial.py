"""Makes the tables, as `semel schema` does."""

from django.db import migrations

from semel.django.tables import MakeTables


class Migration(migrations.Migration):  # type: ignore[misc]
    initial = True
    dependencies = ()
    operations = (MakeTables(),)
