import pytest

from tests.migrate.worker.rehearsal.hosts.opening import OPENING

pytest.importorskip("django")

SETTINGS = """
SECRET_KEY = "x"
ROOT_URLCONF = "shop.urls"
INSTALLED_APPS = [
    "django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions", "corsheaders_of_nobody", "pictures",
]
MIDDLEWARE = [
    "corsheaders_of_nobody.middleware.CorsMiddleware", "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware", "django.contrib.auth.middleware.AuthenticationMiddleware",
]
DATABASES = {"default": {"ENGINE": "django.db.backends.postgresql", "NAME": "pictures"}}
TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "DIRS": [], "APP_DIRS": True}]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
MEDIA_ROOT = "media"
"""
MANAGE = """#!/usr/bin/env python
import os
import sys

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
    from django.core.management import execute_from_command_line
    execute_from_command_line(sys.argv)
"""
URLS = """from django.urls import include, path, re_path
from pictures import views

urlpatterns = [
    path("", views.home),
    path("one/<int:number>/", views.home),
    re_path(r"^(?P<number>\\d+)$", views.home),
    path("api/", include([re_path("^^classify/$", VIEW)])),
]
"""
VIEWS = """
from django.http import JsonResponse
from django.shortcuts import render
from django.views import View
from django.contrib.auth.decorators import login_required
PLACE

def home(request):
    return JsonResponse({"hello": request.method})

"""
FUNCTION = """
def classify(request):
    x = opened(request.FILES["picture"].read())
    return JsonResponse({"classes": NET(x).shape[1]})
"""
FILES = {
    "web/manage.py": MANAGE,
    "web/shop/__init__.py": "",
    "web/shop/settings.py": SETTINGS,
    "web/shop/urls.py": URLS.replace("VIEW", "views.classify"),
    "web/pictures/__init__.py": "",
    "web/pictures/views.py": OPENING + VIEWS.replace("PLACE", "") + FUNCTION,
}
ANSWERS = 'POST /: 200 {"hello": "POST"}\nPOST /api/classify/: 200 {"classes": 3}\n'


@pytest.mark.parametrize(("script", "argv"), [("web/manage.py", ["migrate"]), ("web/pictures/views.py", [])])
def test_each_view_without_parameters_is_asked_by_the_project_or_by_its_file(rehearsed, script, argv):
    done = rehearsed(FILES, *argv, script=script)
    assert (done.report.ended, done.stdout) == ("finished", ANSWERS), done.stderr
    said = [item.what for item in done.standins("servers")]
    assert "the view of /api/classify/ was called with a made image (uploaded as picture) instead of being served" in said
    assert "Django was set up with shop.settings, a database in memory in place of its own" in said
    left = [item.what.rpartition(" ")[2] for item in done.standins("libraries")]
    assert left == ["INSTALLED_APPS", "MIDDLEWARE"]


def test_the_model_of_a_script_of_views_is_made_once(rehearsed):
    text = FILES["web/pictures/views.py"].replace("NET =", "print('made')\nNET =")
    assert rehearsed(FILES | {"web/pictures/views.py": text}, script="web/pictures/views.py").stdout == "made\n" + ANSWERS


MODELS = """from django.db import models

class Picture(models.Model):
    picture = models.FileField(upload_to="pictures")
    made = models.CharField(max_length=10)
"""
FORMS = """from django import forms
from .models import Picture

class PictureForm(forms.ModelForm):
    class Meta:
        model = Picture
        fields = ["picture", "made"]
"""
STORED = """
@login_required
def classify(request):
    form = PictureForm(request.POST, request.FILES)
    if not form.is_valid():
        return JsonResponse({"errors": form.errors}, status=400)
    kept = form.save()
    x = opened(open(kept.picture.path, "rb").read())
    return JsonResponse({"number": kept.pk, "stored": Picture.objects.count(), "classes": NET(x).shape[1]})
"""


def test_forms_tables_and_views_for_users_alone_are_as_in_the_project(rehearsed):
    views = OPENING + VIEWS.replace("PLACE", "from .forms import PictureForm\nfrom .models import Picture") + STORED
    files = FILES | {"web/pictures/models.py": MODELS, "web/pictures/forms.py": FORMS, "web/pictures/views.py": views}
    done = rehearsed(files, script="web/pictures/views.py")
    assert 'POST /api/classify/: 200 {"number": 1, "stored": 1, "classes": 3}\n' in done.stdout, done.stdout + done.stderr


OF_A_CLASS = """
class Classify(View):
    def post(self, request):
        x = opened(base64.b64decode(json.loads(request.body)["image"]))
        return render_of(NET(x).shape[1])

def render_of(classes):
    return JsonResponse({"classes": classes})
"""


def test_a_class_of_views_that_takes_json(rehearsed):
    views = OPENING + "import json\n" + VIEWS.replace("PLACE", "") + OF_A_CLASS
    urls = URLS.replace("VIEW", "views.Classify.as_view()")
    done = rehearsed(FILES | {"web/pictures/views.py": views, "web/shop/urls.py": urls}, script="web/pictures/views.py")
    assert done.stdout == ANSWERS, done.stderr


def test_an_error_of_a_view_is_told(rehearsed):
    views = FILES["web/pictures/views.py"].replace("NET(x)", "NET(x[:, :1])")
    done = rehearsed(FILES | {"web/pictures/views.py": views}, script="web/pictures/views.py")
    assert done.report.ended == "stopped"
    assert done.report.why.startswith("RuntimeError: mat1 and mat2")


def test_another_script_of_the_repository_asks_no_view(rehearsed):
    train = "import django.conf\nimport torch\nprint(torch.nn.Linear(2, 1)(torch.ones(1, 2)).shape)\n"
    done = rehearsed(FILES | {"train.py": train}, script="train.py")
    assert done.stdout == "torch.Size([1, 1])\n", done.stderr


def test_a_command_of_the_projects_own_runs_as_it_is(rehearsed):
    command = "from django.core.management.base import BaseCommand\n\nclass Command(BaseCommand):\n"
    command += "    def handle(self, *args, **options):\n        self.stdout.write('mine')\n"
    files = FILES | {f"web/pictures/management/{name}__init__.py": "" for name in ("", "commands/")}
    done = rehearsed(files | {"web/pictures/management/commands/mine.py": command}, "mine", script="web/manage.py")
    assert (done.report.ended, done.stdout) == ("finished", "mine\n"), done.stderr
