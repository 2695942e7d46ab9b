<?php

declare(strict_types=1);

namespace App\Controller;

use App\Model\User;
use Apus\Controller;
use Apus\HttpException;

final class IndexController extends Controller
{
    public function index(int $id = 1): void
    {
        $user = User::find($id) ?? throw new HttpException(404, 'There is no such user.');
        $this->show('index', ['user' => $user, 'language' => $this->request->attribute('language')]);
    }

    public function hello(): void
    {
        $this->showMessage('<p>Hello, world!</p>');
    }
}
