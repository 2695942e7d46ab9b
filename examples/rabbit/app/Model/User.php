<?php

declare(strict_types=1);

namespace App\Model;

use Illuminate\Database\Eloquent\Model;

/**
 * @property int $id
 * @property string $name
 * @property string $email
 */
final class User extends Model
{
    public $timestamps = false;
    protected $fillable = ['name', 'email'];
}
